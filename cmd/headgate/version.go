package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server"
)

// Builds outside of a git repository, such as a container build, set these by -ldflags "-X main.version=v1.2.3". In a repository the
// go command records the same facts in the build info.
var version, commit, commitTime string

// versionReport is the JSON of "version". Unknown versions and commits are "devel".
type versionReport struct {
	Headgate   string         `json:"headgate"`
	Commit     string         `json:"commit"`
	CommitTime string         `json:"commit_time,omitempty"`
	Go         string         `json:"go"`
	Platform   string         `json:"platform"`
	Formats    server.Formats `json:"formats"`
}

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit, Go version, platform and format versions",
		Example: "  headgate version --output json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return p.showVersion() },
	}
}

func (p *program) showVersion() error { return p.finish(thisVersion(), nil) }

// thisVersion returns the report of this binary.
func thisVersion() *versionReport {
	info, _ := debug.ReadBuildInfo()
	return newVersionReport(info)
}

// newVersionReport reads the linker's variables and the build info. It accepts nil, for a binary built without modules.
func newVersionReport(info *debug.BuildInfo) *versionReport {
	recorded, settings := "", map[string]string{}
	if info != nil {
		recorded = strings.TrimPrefix(info.Main.Version, "(devel)")
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	revision := settings["vcs.revision"]
	if revision != "" && settings["vcs.modified"] == "true" {
		revision += "+modified"
	}
	return &versionReport{
		Headgate:   cmp.Or(version, recorded, "devel"),
		Commit:     cmp.Or(commit, revision, "devel"),
		CommitTime: cmp.Or(commitTime, settings["vcs.time"]),
		Go:         runtime.Version(),
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
		Formats:    server.CurrentFormats(),
	}
}

func (r *versionReport) text() string {
	f := r.Formats
	var b strings.Builder
	fmt.Fprintf(&b, "headgate %s\n", r.Headgate)
	for _, row := range [][2]string{
		{"commit", r.Commit},
		{"commit time", cmp.Or(r.CommitTime, "unknown")},
		{"go", r.Go},
		{"platform", r.Platform},
		{"redis format", f.Redis},
		{"postgres schema", number(f.Postgres)},
		{"last_good_file", fmt.Sprintf("%d with rules, %d with postgres", f.LastGoodFile.Rules, f.LastGoodFile.Postgres)},
		{"reservation token", strconv.Itoa(f.ReservationToken)},
		{"check API", f.CheckAPI},
	} {
		fmt.Fprintf(&b, "  %-18s %s\n", row[0], row[1])
	}
	return b.String()
}
