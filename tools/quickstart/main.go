// Command quickstart runs the commands in the README's section "The first 429", line by line, as a new user would, or those of the pages
// that are its arguments. It serves the working tree as a published module, compares the output of the commands with the text, and
// prints how long it took. It knows the structure of the section and of pages, not the meaning of their lines.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	section = "## The first 429"
	// patience is the time that the README promises for each of the two ways.
	patience = 2 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pages []string) error {
	dir, err := os.MkdirTemp("", "headgate-quickstart-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	version := fmt.Sprintf("v0.0.1-quickstart.%d", time.Now().Unix()) // a new version each time, because the go command caches modules
	defer removeFromCache(context.WithoutCancel(ctx), version)
	env, err := newUserEnv(ctx, dir, version)
	if err != nil {
		return err
	}
	for i, page := range pages {
		start := time.Now()
		home := filepath.Join(dir, fmt.Sprint("page-", i))
		if err := os.Mkdir(home, 0o700); err != nil {
			return err
		}
		install, err := follow(ctx, page, home, env)
		if err != nil {
			return err
		}
		fmt.Printf("ok  %s in %.0f s, %.0f s of which are go install\n", page, time.Since(start).Seconds(), install.Seconds())
	}
	if len(pages) > 0 {
		return nil
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		return err
	}
	ways, err := read(string(readme))
	if err != nil {
		return err
	}
	for i, way := range ways {
		start := time.Now()
		home := filepath.Join(dir, fmt.Sprint("way-", i))
		if err := os.Mkdir(home, 0o700); err != nil {
			return err
		}
		if err := way.try(ctx, home, env); err != nil {
			return fmt.Errorf("%w\nREADME.md, %q: update its lines or the code, so that they agree", err, section)
		}
		fmt.Printf("ok  %-12s the first 429 after %.0f s\n", way.name, time.Since(start).Seconds())
	}
	return nil
}

// way is one way to the first 429: an optional program, the commands for two terminals, and the output of the second.
type way struct{ name, program, first, second, output string }

var block = regexp.MustCompile("(?s)\n```([a-z]*)\n(.*?\n)```")

// read parses the ways in the README.
func read(readme string) ([]way, error) {
	_, text, ok := strings.Cut(readme, section+"\n")
	if !ok {
		return nil, fmt.Errorf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var ways []way
	next := way{}
	for _, b := range block.FindAllStringSubmatch(text, -1) {
		switch kind, lines := b[1], b[2]; {
		case kind == "go":
			next.program = lines
		case kind == "sh" && next.first == "":
			next.first = lines
		case kind == "sh" && next.second == "":
			next.second = lines
		case kind == "" && next.second != "":
			next.output = lines
			next.name = "as a service"
			if next.program != "" {
				next.name = "as a library"
			}
			ways = append(ways, next)
			next = way{}
		default:
			return nil, fmt.Errorf("%q has an unexpected block:\n%s", section, lines)
		}
	}
	if len(ways) != 2 || next != (way{}) {
		return nil, fmt.Errorf("%q has %d complete ways, want 2: as a service and as a library", section, len(ways))
	}
	return ways, nil
}

// newUserEnv returns the environment of a user with Go installed, in which this tree is the published module.
func newUserEnv(ctx context.Context, dir, version string) ([]string, error) {
	proxy, bin := filepath.Join(dir, "published"), filepath.Join(dir, "bin")
	if err := publish(ctx, proxy, version); err != nil {
		return nil, err
	}
	upstream, err := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output()
	if err != nil {
		return nil, err
	}
	proxyURL := url.URL{Scheme: "file", Path: proxy}
	return append(os.Environ(),
		"GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "GOFLAGS=-modcacherw", // for removeFromCache
		"GOPROXY="+proxyURL.String()+","+strings.TrimSpace(string(upstream)),
		"GONOSUMDB="+module, "GONOSUMCHECK=1"), nil
}

// try runs the commands of a way and compares the output.
func (w *way) try(ctx context.Context, dir string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if w.program != "" {
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(w.program), 0o600); err != nil {
			return err
		}
	}
	address, err := addressIn(w.second)
	if err != nil {
		return err
	}
	if listens(ctx, address) {
		return fmt.Errorf("%s is in use: stop the process that listens on it", address)
	}
	first := terminal(ctx, dir, env, w.first)
	var output bytes.Buffer
	first.Stdout, first.Stderr = &output, &output
	if err := first.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = first.Wait() // it is stopped by a signal
		close(exited)
	}()
	defer func() {
		_ = syscall.Kill(-first.Process.Pid, syscall.SIGTERM)
		<-exited
	}()
	for !listens(ctx, address) {
		select {
		case <-exited:
			return fmt.Errorf("the server exited, or did not listen within %s:\n%s\n%s", patience, w.first, output.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	got, err := terminal(ctx, dir, env, w.second).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w:\n%s\n%s", err, w.second, got)
	}
	if string(got) != w.output {
		return fmt.Errorf("%s\nprints\n%s\nwant\n%s", w.second, got, w.output)
	}
	return nil
}

// terminal returns a shell that runs the lines and stops at the first error.
func terminal(ctx context.Context, dir string, env []string, lines string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", lines) //nolint:gosec // G702: lines of our own pages
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

func listens(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// addressIn returns the address in the URL of a curl command.
func addressIn(lines string) (string, error) {
	_, rest, ok := strings.Cut(lines, "http://")
	if end := strings.IndexAny(rest, "/ \n"); ok && end > 0 {
		return rest[:end], nil
	}
	return "", fmt.Errorf("no http://address in\n%s", lines)
}
