package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"
)

// release is what the templates of .goreleaser.yaml may name: the commit to build.
type release struct {
	ProjectName string
	Version     string // without the v of the tag
	FullCommit  string
	CommitDate  string // RFC 3339
	Os, Arch    string
	Env         map[string]string

	time time.Time // of the commit
}

// CommitTimestamp returns the seconds since 1970.
func (r *release) CommitTimestamp() int64 { return r.time.Unix() }

// readRelease reads the commit of the working tree. Without a tag the version is 0.0.0-dev.g<commit>.
func readRelease(ctx context.Context) (*release, error) {
	out, err := output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	r := &release{ProjectName: "headgate", Os: "linux"}
	var seconds int64
	if _, err := fmt.Sscan(out, &r.FullCommit, &seconds); err != nil {
		return nil, fmt.Errorf("git log: %w", err)
	}
	r.time = time.Unix(seconds, 0).UTC()
	r.CommitDate = r.time.Format(time.RFC3339)
	tag, err := output(ctx, "git", "describe", "--tags", "--exact-match", "--match", "v*")
	r.Version = strings.TrimPrefix(strings.TrimSpace(tag), "v")
	if err != nil {
		r.Version = "0.0.0-dev.g" + r.FullCommit[:8]
	}
	return r, nil
}

// versionVariable names the version to GoReleaser, which would make up another one for a commit without a tag.
const versionVariable = "HEADGATE_VERSION"

// recipe is the part of .goreleaser.yaml that the short form builds by itself.
type recipe struct {
	Builds []struct {
		Main    string
		Env     []string
		Goarch  []string
		Flags   []string
		Ldflags []string
	}
	Nfpms []map[string]any
}

// recipe reads .goreleaser.yaml for an architecture.
func (r *release) recipe(arch string) (*recipe, error) {
	data, err := os.ReadFile(".goreleaser.yaml")
	if err != nil {
		return nil, err
	}
	of := *r
	of.Arch, of.Env = arch, map[string]string{versionVariable: r.Version}
	parsed, err := template.New("").Option("missingkey=error").Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf(".goreleaser.yaml: %w", err)
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, &of); err != nil {
		return nil, fmt.Errorf(".goreleaser.yaml: %w", err)
	}
	var c recipe
	if err := yaml.Unmarshal(text.Bytes(), &c); err != nil {
		return nil, fmt.Errorf(".goreleaser.yaml: %w", err)
	}
	if len(c.Builds) != 1 || len(c.Nfpms) != 1 {
		return nil, errors.New(".goreleaser.yaml: want one build and one nfpm")
	}
	return &c, nil
}

// build compiles the program of the module in dir for an architecture.
func (r *release) build(ctx context.Context, dir, arch, to string, env ...string) error {
	c, err := r.recipe(arch)
	if err != nil {
		return err
	}
	b := c.Builds[0]
	args := append([]string{"build", "-o", to}, b.Flags...)
	args = append(args, "-ldflags="+strings.Join(b.Ldflags, " "), b.Main)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOOS="+r.Os, "GOARCH="+arch), append(b.Env, env...)...)
	return run(cmd)
}

// copyTree copies all files of the working tree that git does not ignore.
func copyTree(ctx context.Context, to string) error {
	list, err := output(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command and returns its standard output. The error has the end of what it printed.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout = &out
	err := run(cmd)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(out.String()))
	}
	return out.String(), err
}

func run(cmd *exec.Cmd) error {
	var printed bytes.Buffer
	cmd.Stderr = &printed
	if cmd.Stdout == nil {
		cmd.Stdout = &printed
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, tail(printed.String()))
	}
	return nil
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
