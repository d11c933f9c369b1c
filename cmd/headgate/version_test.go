package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/ruledoc"
)

// TestVersion compares both outputs for builds of several kinds with golden files. Format versions are among them, so that a new
// one is a visible change.
func TestVersion(t *testing.T) {
	t.Parallel()
	tagged := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
	}}
	modified := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
	}}
	for name, info := range map[string]*debug.BuildInfo{"tagged": tagged, "modified": modified, "unknown": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newVersionReport(info)
			if r.Go == "" || !strings.Contains(r.Platform, "/") {
				t.Errorf("Go %q, platform %q", r.Go, r.Platform)
			}
			r.Go, r.Platform = "go0.0.0", "linux/amd64"
			asJSON, err := jsonText(r)
			if err != nil {
				t.Fatal(err)
			}
			got, file := r.text()+"-----\n"+asJSON, filepath.Join("testdata", "version-"+name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || got != string(want) {
				t.Errorf("%v: got:\n%s\nwant:\n%s", err, got, want)
			}
		})
	}
}

// TestFormats checks that the report has what the packages write, not a copy of it.
func TestFormats(t *testing.T) {
	t.Parallel()
	f := startJSON[versionReport](t, 0, "version").Formats
	files, err := filepath.Glob("../../internal/server/pgrules/migrations/*.sql")
	if err != nil || int(f.Postgres) != len(files) {
		t.Errorf("postgres %d, %d migrations, %v", f.Postgres, len(files), err)
	}
	if f.Redis != redisclient.Format || f.ReservationToken != headgate.TokenVersion || f.LastGoodFile.Rules != ruledoc.LastGoodFormat ||
		f.LastGoodFile.Postgres != pgrules.LastGoodFormat || f.CheckAPI != "v1" {
		t.Errorf("%+v", f)
	}
}

// TestVersionByLinker builds the program as a container build does: without a repository, with the version as a linker flag.
func TestVersionByLinker(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	binary := filepath.Join(t.TempDir(), "headgate")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary,
		"-ldflags=-X main.version=v9.8.7 -X main.commit=abc -X main.commitTime=2026-01-02T03:04:05Z", ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "version", "--output", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var r versionReport
	if err := json.Unmarshal(out, &r); err != nil || r.Headgate != "v9.8.7" || r.Commit != "abc" || r.CommitTime != "2026-01-02T03:04:05Z" {
		t.Errorf("%v\n%s", err, out)
	}
}
