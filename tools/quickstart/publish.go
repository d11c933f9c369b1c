package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/headgate/headgate"

// publish writes the tree in the layout of a module proxy. See "GOPROXY protocol" in the Go modules reference.
func publish(ctx context.Context, proxy, version string) error {
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"list": version + "\n", version + ".mod": string(mod),
		version + ".info": fmt.Sprintf(`{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, version),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(pack(ctx, zip.NewWriter(out), version), out.Close())
}

// removeFromCache removes a version, which is not used again, from the module cache.
func removeFromCache(ctx context.Context, version string) {
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return
	}
	root := strings.TrimSpace(string(cache))
	cached, _ := filepath.Glob(filepath.Join(root, "cache", "download", filepath.FromSlash(module), "@v", version+".*"))
	for _, path := range append(cached, filepath.Join(root, filepath.FromSlash(module)+"@"+version)) {
		_ = os.RemoveAll(path)
	}
}

// pack writes the files of the module: all files of the tree that git does not ignore, without nested modules.
func pack(ctx context.Context, w *zip.Writer, version string) error {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	names := strings.Fields(string(list))
	var nested []string // directories of other modules
	for _, name := range names {
		if dir, ok := strings.CutSuffix(name, "/go.mod"); ok {
			nested = append(nested, dir+"/")
		}
	}
	for _, name := range names {
		if slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			continue
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		entry, err := w.Create(path.Join(module+"@"+version, name))
		if err != nil {
			return err
		}
		if _, err := entry.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}
