package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/headgate/headgate/internal/testenv"
)

// mounts returns the files and directories of the host that a service mounts, by path in its container. Those of volumes are empty
// directories.
func (w *world) mounts(s types.ServiceConfig) map[string]string {
	all := map[string]string{}
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeBind {
			all[v.Target] = v.Source
		} else {
			all[v.Target] = ""
		}
	}
	for _, secret := range s.Secrets {
		all["/run/secrets/"+secret.Source] = w.project.Secrets[secret.Source].File
	}
	return all
}

// root returns the directory that stands for the root directory of a service's container.
func (w *world) root(s types.ServiceConfig) string { return filepath.Join(w.dir, "services", s.Name) }

// mount copies the mounted files of a service below its root, with addresses and paths on this machine. Directories are flat.
func (w *world) mount(s types.ServiceConfig) {
	w.scope.Helper()
	for target, source := range w.mounts(s) {
		target = filepath.Join(w.root(s), target)
		if source == "" {
			testenv.NoError(w.scope, os.MkdirAll(target, 0o700))
			continue
		}
		info, err := os.Stat(source)
		testenv.NoError(w.scope, err)
		names := []string{""} // a file
		if info.IsDir() {
			names, err = filepath.Glob(filepath.Join(source, "*"))
			testenv.NoError(w.scope, err)
		}
		for _, name := range names {
			name = strings.TrimPrefix(name, source)
			text, err := os.ReadFile(source + name)
			testenv.NoError(w.scope, err)
			testenv.NoError(w.scope, os.MkdirAll(filepath.Dir(target+name), 0o700))
			testenv.NoError(w.scope, os.WriteFile(target+name, []byte(w.localize(s, string(text))), 0o600))
		}
	}
}

// address returns the address on this machine of a service's port.
func (w *world) address(service, port string) string {
	w.scope.Helper()
	name := service + ":" + port
	if w.addresses[name] == "" {
		w.addresses[name] = testenv.FreeAddress(w.scope)
	}
	return w.addresses[name]
}

// envoyAddress is the format of an address in Envoy's config.
var envoyAddress = regexp.MustCompile(`address: ([\w.-]+), port_value: (\d+)`)

// localize replaces the addresses and paths of a service's container in a text with those on this machine.
func (w *world) localize(s types.ServiceConfig, text string) string {
	w.scope.Helper()
	self := s.Name
	if of, ok := strings.CutPrefix(s.NetworkMode, types.ServicePrefix); ok {
		self = of
	}
	local := func(host, port string) string {
		if _, ok := w.project.Services[host]; !ok {
			host = self
		}
		return w.address(host, port)
	}
	hosts := append(w.project.ServiceNames(), "0.0.0.0", "127.0.0.1")
	text = envoyAddress.ReplaceAllStringFunc(text, func(found string) string {
		m := envoyAddress.FindStringSubmatch(found)
		if !slices.Contains(hosts, m[1]) {
			return found
		}
		host, port, _ := strings.Cut(local(m[1], m[2]), ":")
		return "address: " + host + ", port_value: " + port
	})
	// In one pass, because a replacement contains what the next one would find.
	targets := slices.SortedFunc(maps.Keys(w.mounts(s)), func(a, b string) int { return len(b) - len(a) })
	pattern := `\b(?:` + alternatives(hosts) + `):\d+\b`
	if len(targets) > 0 {
		pattern += `|(?:^|[^\w./-])(?:` + alternatives(targets) + `)\b`
	}
	return regexp.MustCompile(pattern).ReplaceAllStringFunc(text, func(found string) string {
		if before, path, ok := strings.Cut(found, "/"); ok {
			return before + w.root(s) + "/" + path
		}
		host, port, _ := strings.Cut(found, ":")
		return local(host, port)
	})
}

func alternatives(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = regexp.QuoteMeta(text)
	}
	return strings.Join(quoted, "|")
}
