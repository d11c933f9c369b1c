package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	imageUser = 65532
	stateDir  = "/var/lib/headgate" // of last_good_file; a mount point, since the root is read-only
	// authorities are the certificates that connections to Redis and to key servers are verified with.
	authorities = "/etc/ssl/certs/ca-certificates.crt"
)

// buildImage returns the image of deploy/docker/Dockerfile for a binary.
func (r *release) buildImage(arch, binary string) (v1.Image, error) {
	content, err := r.imageContent(binary)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make package"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.imageConfig(image, arch))
}

// imageConfig keeps the layers of the image, and sets the rest.
func (r *release) imageConfig(image v1.Image, arch string) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		config = &v1.ConfigFile{} // of an image in memory: cannot fail
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = r.Os, arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%[1]d", imageUser),
		Entrypoint:   []string{"/headgate"},
		Cmd:          []string{"serve", "--config", "/etc/headgate/config.yaml"},
		WorkingDir:   "/",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}, "8082/tcp": {}, "8083/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "headgate",
			"org.opencontainers.image.description": "Distributed rate limiter",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.source":      "https://github.com/headgate/headgate",
			"org.opencontainers.image.version":     r.Version,
			"org.opencontainers.image.revision":    r.FullCommit,
			"org.opencontainers.image.created":     r.CommitDate,
		},
	}
	return config
}

// imageContent returns the only layer: the program, the certificates and the state's directory.
func (r *release) imageContent(binary string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var errs []error
	add := func(header tar.Header, data []byte) {
		header.Name = strings.TrimPrefix(header.Name, "/")
		header.Size, header.ModTime = int64(len(data)), r.time
		errs = append(errs, w.WriteHeader(&header))
		_, err := w.Write(data)
		errs = append(errs, err)
	}
	for _, dir := range []string{"/etc/", "/etc/headgate/", "/etc/ssl/", "/etc/ssl/certs/", "/var/", "/var/lib/"} {
		add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: stateDir + "/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: imageUser, Gid: imageUser}, nil)
	for _, file := range []struct {
		from, to string
		mode     int64
	}{{binary, "/headgate", 0o755}, {authorities, authorities, 0o644}} {
		data, err := os.ReadFile(file.from)
		errs = append(errs, err)
		add(tar.Header{Name: file.to, Typeflag: tar.TypeReg, Mode: file.mode}, data)
	}
	return b.Bytes(), errors.Join(append(errs, w.Close())...)
}

// writeImages writes an OCI layout, tagged with the version, with an image for each architecture, as a tar archive.
func (r *release) writeImages(images map[string]v1.Image, scratch, to string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		if image := images[arch]; image != nil {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: r.Os, Architecture: arch}},
			})
		}
	}
	dir, err := layout.Write(scratch, empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": r.Version, "io.containerd.image.name": "headgate/headgate:" + r.Version}
	if err := dir.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	return errors.Join(w.AddFS(os.DirFS(scratch)), w.Close(), out.Close())
}

// tryImage unpacks an image and runs it as the config of the deb says, which is mounted as an operator would mount his own.
func tryImage(ctx context.Context, image v1.Image, scratch, arch string) error {
	root := filepath.Join(scratch, "root")
	if err := extract(image, root); err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	c := container{root: root, args: append(slices.Clip(config.Config.Entrypoint), config.Config.Cmd...)}
	if _, err := fmt.Sscanf(config.Config.User, "%d:%d", &c.uid, &c.gid); err != nil || c.uid != imageUser || c.gid != imageUser {
		return fmt.Errorf("user is %q, want %d: %w", config.Config.User, imageUser, err)
	}
	here, err := filepath.Abs("deploy/packaging")
	if err != nil {
		return err
	}
	c.mounts = []mount{
		bind(here, "/etc/headgate", "ro"),
		{stateDir, "tmpfs", "tmpfs", []string{"nosuid", "nodev", "noexec", "mode=0700", fmt.Sprintf("uid=%d,gid=%[1]d", imageUser)}},
	}
	c.emulate(arch)
	return c.tryLimits(ctx)
}

// extract writes the files of an image, with their owners.
func extract(image v1.Image, to string) error {
	stream := mutate.Extract(image)
	defer stream.Close() //nolint:errcheck // it is only read
	for r := tar.NewReader(stream); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, filepath.Clean("/"+header.Name))
		mode := header.FileInfo().Mode()
		switch {
		case mode.IsDir():
			err = os.MkdirAll(path, mode.Perm())
		case mode.IsRegular():
			err = writeFile(path, r, mode.Perm())
		default:
			err = fmt.Errorf("%s: unexpected kind of file", header.Name)
		}
		if err != nil {
			return err
		}
		if err := os.Lchown(path, header.Uid, header.Gid); err != nil {
			return err
		}
	}
}

func writeFile(path string, from io.Reader, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}
