package charttest

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// fixtures returns the Secrets and ConfigMaps that users create, as contents by key, by name.
func fixtures(t testing.TB) map[string]map[string]string {
	t.Helper()
	c := testenv.NewCertificate(t, nil, &x509.Certificate{DNSNames: []string{"headgate"}})
	callers, admins := tokenLine("caller-token", "gateway caller"), tokenLine("admin-token", "ann admin")
	const password = "secret of a user\n"
	return map[string]map[string]string{
		"redis":       {"password": password, "url": "redis://redis:6379"},
		"my-redis":    {"redis-password": password},
		"redis-tls":   {"ca.crt": c.CertPEM, "client.crt": c.CertPEM, "client.key": c.KeyPEM},
		"my-postgres": {"pg-password": password},
		"callers":     {"tokens": callers},
		"my-callers":  {"callers.txt": callers},
		"admins":      {"tokens": admins},
		"my-admins":   {"admins.txt": admins},
		"tls":         {"tls.crt": c.CertPEM, "tls.key": c.KeyPEM, "ca.crt": c.CertPEM},
		"my-tls":      {"cert.pem": c.CertPEM, "key.pem": c.KeyPEM},
		"client-ca":   {"authorities.pem": c.CertPEM},
		"my-regions":  {"cert.pem": c.CertPEM, "key.pem": c.KeyPEM, "authority.pem": c.CertPEM},
		"subjects":    {"key": "0123456789abcdef"},
		"my-rules":    {"rules.yaml": "rules: [{id: by-ip, by: [ip], limit: 5/minute}]\n"},
		"keys":        {"keys.json": "{}"},
	}
}

// tokenLine returns the line of a token for a tokens file.
func tokenLine(token, rights string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:]) + " " + rights + "\n"
}

// built is the headgate program, in a directory of all tests.
var built struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	var err error
	if built.dir, err = os.MkdirTemp("", "charttest"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(built.dir) // in the temporary directory of the system
	os.Exit(code)
}

// program returns the path of the headgate program, which is built once.
func program(t testing.TB) string {
	t.Helper()
	path := filepath.Join(built.dir, "headgate")
	built.Do(func() {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "build", "-o", path, "./cmd/headgate")
		cmd.Dir = testenv.Repository(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	testenv.NoError(t, built.err)
	return path
}

// volume is a directory as the kubelet writes it: the files are symbolic links through ..data into a directory that is replaced as a
// whole.
type volume struct {
	dir     string
	updates int
}

// write replaces the files, in the order of the kubelet's atomic writer.
func (v *volume) write(t testing.TB, files map[string]string) {
	t.Helper()
	v.updates++
	fresh := fmt.Sprintf("..2026_11_17_10_00_%02d.%09d", v.updates%60, v.updates)
	testenv.NoError(t, os.MkdirAll(filepath.Join(v.dir, fresh), 0o700))
	testenv.WriteFiles(t, filepath.Join(v.dir, fresh), files)
	data := filepath.Join(v.dir, "..data")
	stale, _ := os.Readlink(data) // there is none at first
	testenv.NoError(t, os.Symlink(fresh, data+"_tmp"))
	testenv.NoError(t, os.Rename(data+"_tmp", data))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(v.dir)
	testenv.NoError(t, err)
	for _, e := range entries {
		if _, wanted := files[e.Name()]; !wanted && !strings.HasPrefix(e.Name(), "..") {
			testenv.NoError(t, os.Remove(filepath.Join(v.dir, e.Name())))
		}
	}
	if stale != "" {
		testenv.NoError(t, os.RemoveAll(filepath.Join(v.dir, stale)))
	}
}

// pod is the pod of a Deployment, with its volumes below a directory of this machine instead of its root.
type pod struct {
	t         testing.TB
	root      string
	container values
	env       []string
	volumes   map[string]*volume // by name
}

// newPod writes the volumes of the pod's container headgate. Objects that are not rendered are taken from given.
func newPod(t testing.TB, all objects, given map[string]map[string]string) *pod {
	t.Helper()
	spec := at[values](all.find("Deployment", ""), "spec", "template", "spec")
	p := &pod{t: t, root: t.TempDir(), volumes: map[string]*volume{}}
	for _, c := range slices.Concat(at[[]any](spec, "initContainers"), at[[]any](spec, "containers")) {
		if at[string](c, "name") == "headgate" {
			p.container = c.(values)
		}
	}
	if p.container == nil {
		t.Fatalf("no container headgate in %v", spec)
	}
	p.environment(all, given)
	mounts := at[[]any](p.container, "volumeMounts")
	for _, v := range at[[]any](spec, "volumes") {
		name := at[string](v, "name")
		at := slices.IndexFunc(mounts, func(m any) bool { return at[string](m, "name") == name })
		if at < 0 {
			t.Fatalf("volume %s is not mounted", name)
		}
		p.mount(v, mounts[at], all, given)
	}
	if len(mounts) != len(at[[]any](spec, "volumes")) {
		t.Errorf("mounts without a volume: %v", mounts)
	}
	return p
}

// mount writes a volume, as the container sees it.
func (p *pod) mount(v, mount any, all objects, given map[string]map[string]string) {
	p.t.Helper()
	if at[string](mount, "subPath") != "" {
		p.t.Errorf("subPath: the kubelet does not update it: %v", mount)
	}
	written := &volume{dir: filepath.Join(p.root, at[string](mount, "mountPath"))}
	testenv.NoError(p.t, os.MkdirAll(written.dir, 0o700))
	p.volumes[at[string](v, "name")] = written
	files := map[string]string{}
	switch {
	case at[values](v, "emptyDir") != nil:
		return
	case at[values](v, "secret") != nil:
		data := contents(p.t, all, "Secret", at[string](v, "secret", "secretName"), given)
		for _, item := range at[[]any](v, "secret", "items") {
			text, ok := data[at[string](item, "key")]
			if !ok {
				p.t.Fatalf("%v: no such key in the Secret", item)
			}
			files[at[string](item, "path")] = text
		}
	default:
		files = contents(p.t, all, "ConfigMap", at[string](v, "configMap", "name"), given)
	}
	for name, text := range files {
		text = strings.ReplaceAll(text, "/etc/headgate/", p.root+"/etc/headgate/")
		files[name] = strings.ReplaceAll(text, "/var/lib/headgate/", p.root+"/var/lib/headgate/")
	}
	written.write(p.t, files)
}

// environment reads the variables of the container.
func (p *pod) environment(all objects, given map[string]map[string]string) {
	for _, e := range at[[]any](p.container, "env") {
		value := at[string](e, "value")
		if ref := at[values](e, "valueFrom", "secretKeyRef"); ref != nil {
			value = contents(p.t, all, "Secret", at[string](ref, "name"), given)[at[string](ref, "key")]
		}
		p.env = append(p.env, at[string](e, "name")+"="+value)
	}
}

// contents returns the data of a Secret or ConfigMap.
func contents(t testing.TB, all objects, kind, name string, given map[string]map[string]string) map[string]string {
	t.Helper()
	for _, o := range all {
		if o["kind"] != kind || at[string](o, "metadata", "name") != name {
			continue
		}
		files := map[string]string{}
		for key, value := range at[values](o, "data") {
			files[key] = value.(string)
			if kind == "Secret" {
				text, err := base64.StdEncoding.DecodeString(files[key])
				testenv.NoError(t, err)
				files[key] = string(text)
			}
		}
		return files
	}
	if given[name] == nil {
		t.Fatalf("%s %s is neither rendered nor given", kind, name)
	}
	return given[name]
}

// path returns a path of the pod on this machine.
func (p *pod) path(name string) string { return filepath.Join(p.root, name) }

// headgate returns a command of the program with the environment of the container.
func (p *pod) headgate(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), program(p.t), args...)
	cmd.Env = p.env
	return cmd
}

// config returns the path of the config in the pod, as its arguments name it.
func (p *pod) config() string {
	p.t.Helper()
	for _, arg := range at[[]any](p.container, "args") {
		if path, ok := strings.CutPrefix(arg.(string), "--config="); ok {
			return p.path(path)
		}
	}
	p.t.Fatalf("no --config in %v", p.container["args"])
	return ""
}

// validate checks the config and the rules of the pod with the program itself.
func (p *pod) validate() {
	p.t.Helper()
	check := func(args ...string) {
		p.t.Helper()
		if out, err := p.headgate(args...).CombinedOutput(); err != nil {
			config, _ := os.ReadFile(p.config())
			p.t.Errorf("headgate %s: %v\n%s\n%s", args[0], err, out, config)
		}
	}
	check("config", "validate", p.config())
	if rules := p.path("/etc/headgate/rules"); isDir(rules) {
		check("rules", "validate", rules)
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
