package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionReport is the JSON of "version". Unknown values are "devel".
type versionReport struct {
	Headgate string `json:"headgate"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit, Go version and platform",
		Example: "  headgate version --output json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return p.showVersion() },
	}
}

func (p *program) showVersion() error {
	info, _ := debug.ReadBuildInfo()
	return p.finish(newVersionReport(info), nil)
}

// programVersion returns the version of this binary.
func programVersion() string {
	info, _ := debug.ReadBuildInfo()
	return newVersionReport(info).Headgate
}

// newVersionReport reads the build info. It accepts nil, for a binary built without modules.
func newVersionReport(info *debug.BuildInfo) *versionReport {
	r := &versionReport{"devel", "devel", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return r
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		r.Headgate = v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		r.Commit = revision
		if settings["vcs.modified"] == "true" {
			r.Commit += "+modified"
		}
	}
	return r
}

func (r *versionReport) text() string {
	return fmt.Sprintf("headgate %s, commit %s, %s, %s\n", r.Headgate, r.Commit, r.Go, r.Platform)
}
