package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// fullTools are the commands that only the full form needs. All but .bin/goreleaser are Debian packages: lintian, buildah,
// qemu-user-static, zsh, fish.
var fullTools = []string{".bin/goreleaser", "lintian", "buildah", qemu, "zsh", "fish"}

const qemu = "qemu-aarch64-static"

// archives of GoReleaser, by architecture, have the program in these directories of dist.
var goreleaserDirs = map[string]string{"amd64": "headgate_linux_amd64_v1", "arm64": "headgate_linux_arm64_v8.0"}

// emulate runs the container by an emulator if this machine is of another architecture. The emulator's system calls are not the
// program's, so that they are not filtered.
func (c *container) emulate(arch string) {
	if arch == runtime.GOARCH {
		return
	}
	path, err := exec.LookPath(qemu)
	if err != nil {
		path = qemu // requireTools has found it
	}
	c.args = append([]string{"/" + qemu}, c.args...)
	c.mounts = append(c.mounts, bind(path, "/"+qemu, "ro"))
	c.syscalls = nil
}

// full has GoReleaser build everything, and tries all of it.
func (w *workshop) full(ctx context.Context) {
	w.report.line("GoReleaser", "", func() error {
		cmd := exec.CommandContext(ctx, ".bin/goreleaser", "release", "--snapshot", "--clean")
		// It wants to know a remote, which a clone on the way to a release need not have. Nothing is sent there.
		cmd.Env = append(os.Environ(), versionVariable+"="+w.Version, "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=remote.origin.url", "GIT_CONFIG_VALUE_0=https://github.com/headgate/headgate")
		return run(cmd)
	})
	if w.report.failed > 0 {
		return
	}
	binaries := map[string]string{}
	for arch, dir := range goreleaserDirs {
		binaries[arch] = filepath.Join(dist, dir, "headgate")
	}
	own := filepath.Join(w.scratch, "own")
	w.report.line("binary amd64, three times", binaries["amd64"], func() error {
		err := w.tryReproducible(ctx, own, "GOCACHE="+filepath.Join(w.scratch, "cache")) // compiled anew, not taken from a cache
		return errors.Join(err, sameBytes(own, binaries["amd64"]))
	})
	for _, arch := range []string{"amd64", "arm64"} {
		archive, deb := filepath.Join(dist, w.fileName(arch)+".tar.gz"), filepath.Join(dist, w.fileName(arch)+".deb")
		w.report.line("archive "+arch, archive, func() error { return w.tryArchive(ctx, archive, arch) })
		w.report.line("deb "+arch, deb, func() error {
			if _, err := output(ctx, "lintian", "--allow-root", "--fail-on", "error", deb); err != nil {
				return err
			}
			return w.tryDeb(ctx, deb, arch)
		})
	}
	w.report.line("completions and manual pages", "", func() error { return tryTexts(ctx) })
	w.tryImages(ctx, binaries)
	w.report.line("Dockerfile, final stage", "", func() error { return w.tryDockerfile(ctx, binaries["amd64"]) })
	w.report.line("checksums", filepath.Join(dist, checksums), func() error { return w.tryChecksums(ctx) })
}

// tryArchive unpacks an archive and runs the program in it.
func (w *workshop) tryArchive(ctx context.Context, file, arch string) error {
	dir := filepath.Join(w.scratch, "archive-"+arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, "tar", "--extract", "--no-same-owner", "--file", file, "--directory", dir); err != nil {
		return err
	}
	root := filepath.Join(dir, w.fileName(arch))
	for _, name := range []string{"LICENSE", "config.yaml", "rules/example.yaml", "systemd/headgate.service", "man/headgate.1.gz", "completions/headgate.zsh"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil { // a mount point
		return err
	}
	c := container{root: root, args: []string{"/headgate", "serve", "--dev"}, uid: imageUser, gid: imageUser}
	c.emulate(arch)
	return c.tryLimits(ctx)
}

// tryTexts checks that shells and man can read what GoReleaser's hook has generated.
func tryTexts(ctx context.Context) error {
	var errs []error
	for _, shell := range []string{"bash", "zsh", "fish"} {
		_, err := output(ctx, shell, "-n", "out/completions/headgate."+shell)
		errs = append(errs, err)
	}
	pages, err := filepath.Glob("out/man/*.1.gz")
	if err != nil || len(pages) < 30 {
		errs = append(errs, fmt.Errorf("%d manual pages, %w", len(pages), err))
	}
	for _, page := range pages {
		text, err := output(ctx, "man", "--local-file", page)
		if err == nil && !strings.Contains(text, "SYNOPSIS") {
			err = fmt.Errorf("%s has no synopsis:\n%s", page, text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// tryDockerfile builds the last stage of the Dockerfile, with a directory in place of the stage before it, which needs a registry. The
// image must have the files and the config of ours.
func (w *workshop) tryDockerfile(ctx context.Context, binary string) error {
	dir := filepath.Join(w.scratch, "docker")
	text, err := os.ReadFile("deploy/docker/Dockerfile")
	if err != nil {
		return err
	}
	_, last, ok := strings.Cut(string(text), "\nFROM scratch\n")
	if !ok {
		return errors.New("the last stage of deploy/docker/Dockerfile is not FROM scratch")
	}
	want, err := w.buildImage("amd64", binary)
	if err != nil {
		return err
	}
	stage := filepath.Join(dir, "build")
	files, state := filepath.Join(stage, "root-of-image"), filepath.Join(stage, "state")
	err = errors.Join(extract(want, files), os.Mkdir(state, 0o755), os.Rename(files+stateDir, filepath.Join(state, "headgate")))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(file, []byte("FROM scratch\n"+last), 0o600); err != nil {
		return err
	}
	storage := []string{"--storage-driver=vfs", "--root=" + filepath.Join(dir, "storage"), "--runroot=" + filepath.Join(dir, "run")}
	build := append(slices.Clip(storage), "build", "--isolation=chroot", "--file="+file, "--build-context=build="+stage, "--tag=headgate",
		"--build-arg=VERSION="+w.Version, "--build-arg=COMMIT="+w.FullCommit, "--build-arg=CREATED="+w.CommitDate, dir)
	push := append(slices.Clip(storage), "push", "headgate", "oci:"+filepath.Join(dir, "oci"))
	for _, args := range [][]string{build, push} {
		if _, err := output(ctx, "buildah", args...); err != nil {
			return err
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "oci"))
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	got, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	return errors.Join(sameConfig(got, want), sameFiles(got, want), tryImage(ctx, got, filepath.Join(dir, "image"), "amd64"))
}

// sameConfig compares what a container engine reads of two images.
func sameConfig(got, want v1.Image) error {
	var texts [2]string
	for i, image := range []v1.Image{got, want} {
		file, err := image.ConfigFile()
		if err != nil {
			return err
		}
		c := file.Config
		delete(c.Labels, "io.buildah.version")
		texts[i] = fmt.Sprint(c.User, c.Entrypoint, c.Cmd, c.WorkingDir, c.ExposedPorts, c.Labels)
	}
	if texts[0] != texts[1] {
		return fmt.Errorf("deploy/docker/Dockerfile and \"make package\" differ:\n%s\n%s", texts[0], texts[1])
	}
	return nil
}

// sameFiles compares names, owners, modes and sizes.
func sameFiles(got, want v1.Image) error {
	var texts [2]string
	for i, image := range []v1.Image{got, want} {
		var lines []string
		stream := mutate.Extract(image)
		for r := tar.NewReader(stream); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("/%s %o %d:%d %d", strings.Trim(h.Name, "/"), h.Mode&0o7777, h.Uid, h.Gid, h.Size))
		}
		slices.Sort(lines)
		texts[i] = strings.Join(lines, "\n")
		if err := stream.Close(); err != nil {
			return err
		}
	}
	if texts[0] != texts[1] {
		return fmt.Errorf("deploy/docker/Dockerfile and \"make package\" differ:\n%s\n\n%s", texts[0], texts[1])
	}
	return nil
}

const checksums = "checksums.txt"

// tryChecksums adds the files that GoReleaser does not know, and checks all sums as users do.
func (w *workshop) tryChecksums(ctx context.Context) error {
	out, err := os.OpenFile(filepath.Join(dist, checksums), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, pattern := range []string{"*_image.tar", "*.spdx.json"} {
		files, err := filepath.Glob(filepath.Join(dist, pattern))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("no %s: %w", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(out, "%x  %s\n", sha256.Sum256(data), filepath.Base(file)); err != nil {
				return err
			}
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sha256sum", "--check", "--strict", checksums)
	cmd.Dir = dist
	return run(cmd)
}
