package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses of the default config. Each container has a network of its own, so that they are always free.
const (
	checkURL = "http://127.0.0.1:8080/v1/authorize"
	readyURL = "http://127.0.0.1:8082/readyz"
	// patience is how long a server may take to get ready. Under emulation it takes seconds.
	patience = time.Minute
	// stopTime is what "headgate serve --help" promises.
	stopTime = 12 * time.Second
)

// container is a program to run as a container engine would: nothing but its own files, read-only, without capabilities.
type container struct {
	root     string // directory of its files
	args     []string
	uid, gid int
	mounts   []mount
	// syscalls are the allowed system calls; all that runc allows if there are none.
	syscalls []string
}

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// bind mounts a file or directory of this machine.
func bind(source, destination, mode string) mount {
	return mount{destination, "bind", source, []string{"rbind", "nosuid", "nodev", mode}}
}

func (c *container) spec() map[string]any {
	linux := map[string]any{
		"namespaces": []map[string]string{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}},
	}
	if len(c.syscalls) > 0 {
		linux["seccomp"] = map[string]any{
			"defaultAction": "SCMP_ACT_ERRNO",
			"syscalls":      []map[string]any{{"names": c.syscalls, "action": "SCMP_ACT_ALLOW"}},
		}
	}
	return map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]int{"uid": c.uid, "gid": c.gid}, "args": c.args, "cwd": "/",
			"env": []string{"PATH=/"}, "noNewPrivileges": true, "capabilities": map[string]any{},
		},
		"root":   map[string]any{"path": c.root, "readonly": true},
		"mounts": append([]mount{{"/proc", "proc", "proc", nil}}, c.mounts...),
		"linux":  linux,
	}
}

// tryLimits runs the container, sends six requests, of which the last must be denied, and stops it.
func (c *container) tryLimits(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "headgate-package-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	spec, err := json.Marshal(c.spec())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o600); err != nil {
		return err
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer logFile.Close() //nolint:errcheck // it is only read
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	name, state := filepath.Base(dir), filepath.Join(dir, "state")
	cmd := exec.CommandContext(ctx, "runc", "--root", state, "run", "--bundle", dir, "--pid-file", filepath.Join(dir, "pid"), name)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	defer func() {
		if err != nil {
			_, _ = output(context.WithoutCancel(ctx), "runc", "--root", state, "delete", "--force", name)
			if text, readErr := os.ReadFile(logFile.Name()); readErr == nil {
				err = fmt.Errorf("%w\n%s", err, tail(string(text)))
			}
		}
	}()

	client, err := c.client(ctx, filepath.Join(dir, "pid"), exited)
	if err != nil {
		return err
	}
	if err := sendSix(ctx, client); err != nil {
		return err
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // runc passes it on
		return err
	}
	select {
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("after SIGTERM: %w", err)
		}
	case <-time.After(stopTime + 5*time.Second):
		return fmt.Errorf("still running %s after SIGTERM", stopTime)
	}
	text, err := os.ReadFile(logFile.Name())
	if err == nil && !strings.Contains(string(text), "draining") {
		err = errors.New("stopped without draining")
	}
	return err
}

// client waits until the server is ready. It returns a client in the container's network.
func (c *container) client(ctx context.Context, pidFile string, exited chan error) (*http.Client, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		pid, err := os.ReadFile(pidFile)
		if err != nil {
			return nil, err
		}
		return dialIn(ctx, "/proc/"+string(pid)+"/ns/net", network, address)
	}}}
	deadline := time.Now().Add(patience)
	for {
		status, err := get(ctx, client, readyURL)
		if err == nil && status == http.StatusOK {
			return client, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("not ready after %s: status %d, %w", patience, status, err)
		}
		select {
		case err := <-exited:
			exited <- err
			return nil, fmt.Errorf("exited at its start: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// dialIn dials in another network namespace. A socket stays in the namespace of the thread that made it.
func dialIn(ctx context.Context, namespace, network, address string) (net.Conn, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close() //nolint:errcheck // it is only read
	other, err := os.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer other.Close() //nolint:errcheck // it is only read
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	conn, dialErr := (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, address)
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return conn, dialErr
}

func sendSix(ctx context.Context, client *http.Client) error {
	want, got := []int{200, 200, 200, 200, 200, 429}, []int{}
	for range want {
		status, err := get(ctx, client, checkURL)
		if err != nil {
			return err
		}
		got = append(got, status)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("six requests got %v, want %v", got, want)
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
