// Command package builds what a release consists of, and tries each artefact as its users would: it installs or unpacks it, runs it,
// sends six requests, of which the sixth must be denied, and stops it. It knows how artefacts are made and run, not what they limit.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// dist is where artefacts are written.
const dist = "dist"

func main() {
	short := flag.Bool("short", false, "only the binary, the deb and the image for amd64, without GoReleaser")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := packageAll(ctx, *short)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func packageAll(ctx context.Context, short bool) error {
	if err := os.Chdir("../.."); err != nil { // the runner is a module of its own
		return err
	}
	tools := []string{"git", "go", "dpkg", "runc", "systemd-analyze"}
	if !short {
		tools = append(tools, fullTools...)
	}
	err := requireTools(tools...)
	if os.Geteuid() != 0 {
		err = errors.Join(err, errors.New("not run as root, which runc and dpkg need"))
	}
	if err != nil && short && os.Getenv("CI") == "" { // as tests do without their servers
		fmt.Println("skipped:", err)
		return nil
	}
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "headgate-package-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := errors.Join(os.RemoveAll(dist), os.MkdirAll(dist, 0o755)); err != nil {
		return err
	}
	r, err := readRelease(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("headgate %s, commit %s\n\n", r.Version, r.FullCommit)
	w := &workshop{release: r, scratch: scratch, report: newReport()}
	if short {
		w.short(ctx)
	} else {
		w.full(ctx)
	}
	if w.report.failed > 0 {
		return fmt.Errorf("%d artefacts failed", w.report.failed)
	}
	return nil
}

// workshop builds and tries artefacts.
type workshop struct {
	*release
	scratch string
	report  *report
}

// short builds for amd64 only, with what the repository needs anyway.
func (w *workshop) short(ctx context.Context) {
	binary := filepath.Join(dist, "headgate-linux-amd64")
	w.report.line("binary amd64, twice", binary, func() error { return w.tryReproducible(ctx, binary) })
	if w.report.failed > 0 {
		return // nothing else can be built
	}
	file := filepath.Join(dist, w.fileName("amd64")+".deb")
	w.report.line("deb amd64", file, func() error {
		if _, err := output(ctx, "deploy/packaging/generate.sh", binary); err != nil {
			return err
		}
		if err := w.buildDeb("amd64", binary, file); err != nil {
			return err
		}
		return w.tryDeb(ctx, file, "amd64")
	})
	w.tryImages(ctx, map[string]string{"amd64": binary})
}

// fileName returns the name of an artefact, without its suffix.
func (w *workshop) fileName(arch string) string {
	return fmt.Sprintf("%s_%s_%s_%s", w.ProjectName, w.Version, w.Os, arch)
}

func (w *workshop) imageName() string {
	return fmt.Sprintf("%s_%s_image.tar", w.ProjectName, w.Version)
}

// tryImages builds one image of the binaries, by architecture, and tries it for each.
func (w *workshop) tryImages(ctx context.Context, binaries map[string]string) {
	file := filepath.Join(dist, w.imageName())
	images := map[string]v1.Image{}
	for _, arch := range slices.Sorted(maps.Keys(binaries)) {
		w.report.line("image "+arch, file, func() error {
			image, err := w.buildImage(arch, binaries[arch])
			if err != nil {
				return err
			}
			images[arch] = image
			return errors.Join(
				w.writeImages(images, filepath.Join(w.scratch, "layout-"+arch), file),
				w.writeSBOM(binaries[arch], filepath.Join(dist, w.fileName(arch)+".spdx.json")),
				tryImage(ctx, image, filepath.Join(w.scratch, "image-"+arch), arch))
		})
	}
}

// tryReproducible builds the program here and in a copy of the tree elsewhere, and compares them.
func (w *workshop) tryReproducible(ctx context.Context, binary string, env ...string) error {
	path, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	elsewhere := filepath.Join(w.scratch, "elsewhere")
	if err := errors.Join(w.build(ctx, ".", "amd64", path), copyTree(ctx, elsewhere)); err != nil {
		return err
	}
	again := filepath.Join(w.scratch, "again")
	if err := w.build(ctx, elsewhere, "amd64", again, env...); err != nil {
		return err
	}
	return errors.Join(sameBytes(path, again), w.tryVersion(ctx, path))
}

// tryVersion checks that the binary knows which release it is.
func (w *workshop) tryVersion(ctx context.Context, binary string) error {
	text, err := output(ctx, binary, "version")
	if err != nil {
		return err
	}
	for _, want := range []string{"headgate v" + w.Version + "\n", w.FullCommit, w.CommitDate} {
		if !strings.Contains(text, want) {
			return fmt.Errorf("headgate version prints no %q:\n%s", want, text)
		}
	}
	return nil
}

// tryDeb installs, runs, upgrades and removes a deb, under the system call filter of its unit.
func (w *workshop) tryDeb(ctx context.Context, file, arch string) error {
	root, err := newDebRoot(filepath.Join(w.scratch, "root-"+arch))
	if err != nil {
		return err
	}
	if err := root.dpkg(ctx, "--install", file); err != nil {
		return err
	}
	if _, err := os.Lstat(root.path("/etc/systemd/system/multi-user.target.wants/headgate.service")); err != nil {
		return fmt.Errorf("not enabled: %w", err)
	}
	uid, gid, err := root.user()
	if err != nil {
		return err
	}
	start, err := root.unit("ExecStart")
	if err != nil || len(start) != 1 {
		return fmt.Errorf("unit has ExecStart %q, %w", start, err)
	}
	filters, err := root.unit("SystemCallFilter")
	if err != nil {
		return err
	}
	sets, err := systemCallSets(ctx)
	if err != nil {
		return err
	}
	c := container{
		syscalls: systemCalls(sets, filters),
		root:     root.dir, args: strings.Fields(start[0]), uid: uid, gid: gid,
		mounts: []mount{bind(root.path("/var/lib/headgate"), "/var/lib/headgate", "rw")},
	}
	c.emulate(arch)
	if err := c.tryLimits(ctx); err != nil {
		return err
	}
	if arch == runtime.GOARCH {
		if err := root.tryDocs(ctx); err != nil {
			return err
		}
	}
	return root.tryUpgrade(ctx, file)
}

func sameBytes(a, b string) error {
	first, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(b)
	if err == nil && !bytes.Equal(first, second) {
		err = fmt.Errorf("%s and %s differ", a, b)
	}
	return err
}

// requireTools reports the commands that are missing, all at once.
func requireTools(names ...string) error {
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing: %s: install them with make deps, or your system's packages", strings.Join(missing, ", "))
	}
	return nil
}

// report is a table of artefacts. It counts those that failed.
type report struct{ failed int }

func newReport() *report {
	fmt.Print("| artefact | MB | seconds | |\n|---|---|---|---|\n")
	return &report{}
}

// line builds and tries an artefact, and prints its row.
func (r *report) line(what, file string, try func() error) {
	start := time.Now()
	err := try()
	size, verdict := "–", "PASS"
	if info, statErr := os.Stat(file); statErr == nil {
		size = fmt.Sprintf("%.1f", float64(info.Size())/1e6)
	}
	if err != nil {
		r.failed++
		verdict = "FAIL"
	}
	fmt.Printf("| %s | %s | %.0f | %s |\n", what, size, time.Since(start).Seconds(), verdict)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	}
}
