package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/examples"
)

// starter is a set of files to begin with.
type starter struct {
	name, summary string
	// files maps names of new files to their paths in package examples.
	files [][2]string
	// next lists what to do with the files that are not Headgate's own.
	next []string
}

// application is a stand-in for the application that the gateways forward requests to.
const application = "python3 -m http.server 9000 --bind 127.0.0.1 # or your application, on port 9000"

var (
	configFile = [2]string{"config.yaml", "gateways/headgate.yaml"}
	rulesFile  = [2]string{"rules.yaml", "gateways/rules.yaml"}
)

var starters = []starter{
	{"caddy", "Caddy asks before it forwards a request", [][2]string{configFile, rulesFile, {"Caddyfile", "caddy/Caddyfile"}}, []string{
		application, "caddy run --config Caddyfile", "curl -i http://127.0.0.1:8003/",
	}},
	{"envoy", "Envoy asks by its rate limit filter", [][2]string{configFile, rulesFile, {"envoy.yaml", "envoy/envoy.yaml"}}, []string{
		application, "envoy -c envoy.yaml", "curl -i http://127.0.0.1:8004/",
	}},
	{"haproxy", "HAProxy asks by a Lua script", [][2]string{
		configFile, rulesFile, {"haproxy.cfg", "haproxy/haproxy.cfg"}, {"headgate.lua", "haproxy/headgate.lua"},
	}, []string{application, "haproxy -f haproxy.cfg", "curl -i http://127.0.0.1:8002/"}},
	{"library", "a Go program limits its own requests, without a server", [][2]string{rulesFile, {"main.go", "library/main.go"}}, []string{
		"go mod init example && go mod tidy", "go run .", "curl -i http://127.0.0.1:8090/",
	}},
	{"nginx", "nginx asks by auth_request", [][2]string{
		configFile, rulesFile, {"headgate.conf", "nginx/headgate.conf"}, {"nginx.conf", "nginx/nginx.conf"},
	}, []string{application, `nginx -p "$(mktemp -d)" -c "$PWD/nginx.conf" -e stderr`, "curl -i http://127.0.0.1:8001/"}},
	{"service", "programs ask by the check API", [][2]string{configFile, rulesFile}, []string{
		`curl http://127.0.0.1:8080/v1/check --json '{"attributes": {"ip": "192.0.2.1", "method": "GET", "path": "/"}}'`,
	}},
}

// initReport is the JSON of "init".
type initReport struct {
	// OK is whether the files were written.
	OK        bool     `json:"ok"`
	Kind      string   `json:"kind"`
	Directory string   `json:"directory"`
	Files     []string `json:"files"`
	// Existing are the files that prevented it.
	Existing []string `json:"existing"`
	// Next are the commands to run in the directory.
	Next []string `json:"next"`
}

func newInit(p *program) *cobra.Command {
	var dir string
	var names []string
	var list strings.Builder
	for _, s := range starters {
		names = append(names, s.name)
		fmt.Fprintf(&list, "  %-8s %s\n", s.name, s.summary)
	}
	cmd := &cobra.Command{
		Use:       "init KIND",
		Short:     "Write a config, rules and a gateway's config to begin with",
		ValidArgs: names,
		Long: `Write a commented config and rules to begin with, and the config of a gateway that asks the server. KIND is how the limits are
applied:

` + list.String() + `
Existing files are never overwritten: if there is one, nothing is written.

Exit codes:
  0  the files were written
  1  a file exists, nothing was written
  2  the files cannot be written`,
		Example: "  headgate init nginx\n  headgate init service --dir /etc/headgate",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for i := range starters {
				if starters[i].name != args[0] {
					continue
				}
				r, err := starters[i].write(dir)
				if err != nil {
					return err
				}
				return p.finish(r, failUnless(r.OK))
			}
			return usage(cmd, fmt.Errorf("%q: must be one of %s", args[0], strings.Join(names, ", ")))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "`DIRECTORY` to write to; it is created if it is missing")
	return cmd
}

// write writes all files, or none if one of them exists.
func (s *starter) write(dir string) (*initReport, error) {
	r := &initReport{Kind: s.name, Directory: dir, Files: []string{}, Existing: []string{}, Next: []string{}}
	for _, f := range s.files {
		name := filepath.Join(dir, f[0])
		switch _, err := os.Lstat(name); {
		case err == nil:
			r.Existing = append(r.Existing, name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if len(r.Existing) > 0 {
		return r, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it has no secrets, and the server is another user
		return nil, err
	}
	hasConfig := false
	for _, f := range s.files {
		text, err := examples.Files.ReadFile(f[1])
		if err != nil {
			return nil, err
		}
		name := filepath.Join(dir, f[0])
		if err := writeNew(name, text); err != nil {
			return nil, err
		}
		r.Files = append(r.Files, name)
		hasConfig = hasConfig || f == configFile
	}
	r.OK = true
	r.Next = append(r.Next, "headgate rules validate "+rulesFile[0])
	if hasConfig {
		r.Next = append(r.Next, "redis-server # unless Redis runs at redis.address of "+configFile[0], "headgate doctor --config "+configFile[0], "headgate serve --config "+configFile[0])
	}
	r.Next = append(r.Next, s.next...)
	return r, nil
}

// writeNew writes a file that must not exist.
func writeNew(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as the directory
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

func (r *initReport) text() string {
	if !r.OK {
		return fmt.Sprintf("%s exists: nothing was written; remove it, or choose another directory with --dir\n", strings.Join(r.Existing, ", "))
	}
	var b strings.Builder
	for _, name := range r.Files {
		b.WriteString("wrote " + name + "\n")
	}
	b.WriteString("\nnext")
	if path.Clean(r.Directory) != "." {
		b.WriteString(", in " + r.Directory)
	}
	b.WriteString(":\n")
	for _, command := range r.Next {
		b.WriteString("  " + command + "\n")
	}
	return b.String()
}
