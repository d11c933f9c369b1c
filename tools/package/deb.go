package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"go.yaml.in/yaml/v3"
)

// buildDeb writes the deb that .goreleaser.yaml describes. GoReleaser's section has the keys of an nfpm.yaml, but for a few.
func (r *release) buildDeb(arch, binary, to string) error {
	c, err := r.recipe(arch)
	if err != nil {
		return err
	}
	section := c.Nfpms[0]
	section["name"], section["arch"], section["platform"], section["version"] = section["package_name"], arch, r.Os, r.Version
	delete(section, "package_name")
	delete(section, "formats")
	section["mtime"] = r.time
	section["depends"] = section["dependencies"]
	delete(section, "dependencies")
	contents, _ := section["contents"].([]any)
	section["contents"] = append(contents, map[string]any{
		"src": binary, "dst": "/usr/bin/headgate", "file_info": map[string]any{"mode": 0o755},
	})
	text, err := yaml.Marshal(section)
	if err != nil {
		return err
	}
	config, err := nfpm.Parse(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf(".goreleaser.yaml: nfpms: %w", err)
	}
	info, err := config.Get("deb")
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(deb.Default.Package(info, out), out.Close())
}

// debRoot is the root directory of a system of its own, in which dpkg installs.
type debRoot struct{ dir string }

func newDebRoot(dir string) (*debRoot, error) {
	admin := dir + "/var/lib/dpkg"
	for _, name := range []string{admin + "/info", admin + "/updates", admin + "/triggers", dir + "/etc"} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return nil, err
		}
	}
	return &debRoot{dir}, os.WriteFile(admin+"/status", nil, 0o600)
}

// dpkg runs dpkg on this root. Scripts run outside of the root, with DPKG_ROOT, since it has no shell.
func (d *debRoot) dpkg(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "dpkg", append([]string{
		"--root=" + d.dir, "--force-script-chrootless", "--force-depends", "--force-architecture", "--force-confold", "--log=/dev/null",
	}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "DEBIAN_FRONTEND=noninteractive")
	return run(cmd)
}

func (d *debRoot) path(name string) string { return filepath.Join(d.dir, name) }

// user returns the ids of the user that the package has created, and its line.
func (d *debRoot) user() (uid, gid int, err error) {
	data, err := os.ReadFile(d.path("/etc/passwd"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if fields[0] == "headgate" && len(fields) == 7 {
			_, err = fmt.Sscan(fields[2]+" "+fields[3], &uid, &gid)
			return uid, gid, err
		}
	}
	return 0, 0, errors.New("the package has not created the user headgate")
}

// unit returns the values of a key of the installed unit.
func (d *debRoot) unit(key string) ([]string, error) {
	data, err := os.ReadFile(d.path("/usr/lib/systemd/system/headgate.service"))
	if err != nil {
		return nil, err
	}
	var values []string
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			values = append(values, value)
		}
	}
	return values, nil
}

// tryDocs runs the headgate commands of docs/install.md with the files of the package.
func (d *debRoot) tryDocs(ctx context.Context) error {
	text, err := os.ReadFile("docs/install.md")
	if err != nil {
		return err
	}
	commands := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "headgate ")
		if !ok {
			continue
		}
		commands++
		cmd := exec.CommandContext(ctx, "/usr/bin/headgate", strings.Fields(command)...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: d.dir}
		if err := run(cmd); err != nil {
			return fmt.Errorf("docs/install.md: %w", err)
		}
	}
	if commands == 0 {
		return errors.New("docs/install.md has no headgate command")
	}
	return nil
}

// tryUpgrade checks what an operator relies on: a changed config survives an upgrade and a removal, and a purge leaves nothing.
func (d *debRoot) tryUpgrade(ctx context.Context, file string) error {
	config := d.path("/etc/headgate/config.yaml")
	shipped, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	changed := append(slices.Clip(shipped), "# changed by the operator\n"...)
	if err := os.WriteFile(config, changed, 0o644); err != nil {
		return err
	}
	for _, step := range [][]string{{"--install", file}, {"--remove", "headgate"}} {
		if err := d.dpkg(ctx, step...); err != nil {
			return err
		}
		if kept, err := os.ReadFile(config); err != nil || !bytes.Equal(kept, changed) {
			return fmt.Errorf("dpkg %s does not keep a changed config: %w", step[0], err)
		}
	}
	if _, err := os.Stat(d.path("/usr/bin/headgate")); err == nil {
		return errors.New("dpkg --remove leaves the program")
	}
	if err := d.dpkg(ctx, "--purge", "headgate"); err != nil {
		return err
	}
	for _, name := range []string{"/etc/headgate", "/var/lib/headgate", "/usr/share/doc/headgate"} {
		if _, err := os.Stat(d.path(name)); err == nil {
			return fmt.Errorf("dpkg --purge leaves %s", name)
		}
	}
	return nil
}
