package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/envoyconfig"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/internal/yamldoc"
)

// fromEnvoy is the only supported value of --from.
const fromEnvoy = "envoy-ratelimit"

func newImport(p *program) *cobra.Command {
	var from, out string
	cmd := &cobra.Command{
		Use:   "import --from envoy-ratelimit [--dir DIRECTORY] FILE...",
		Short: "Convert the config of another rate limiter into rules",
		Long: `Convert configs of envoyproxy/ratelimit into rules, for a Headgate server that replaces it behind Envoy. The rules are
printed as one document or, with --dir, written to DIR/FILE.yaml for each FILE, with tests in DIR/FILE_test.yaml. Files of
the same domain are merged. Settings that rules cannot express are reported, each with an alternative.

Exit codes:
  0  everything was converted
  1  some settings were not converted
  2  a file cannot be read or written`,
		Example: "  headgate rules import --from envoy-ratelimit --dir rules config/*.yaml\n" +
			"  headgate rules test rules/*_test.yaml",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if from != fromEnvoy {
				return usage(cmd, fmt.Errorf("--from %q: must be %s", from, fromEnvoy))
			}
			return p.importRules(files, out)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`KIND` of the config (required): "+fromEnvoy)
	cmd.Flags().StringVar(&out, "dir", "", "`DIRECTORY` for rules and tests; existing files are never overwritten")
	return cmd
}

func (p *program) importRules(files []string, out string) error {
	sources := make([]yamldoc.Source, len(files))
	for i, file := range files {
		data, err := yamldoc.ReadFile(file, envoyconfig.MaxBytes)
		if err != nil {
			return err
		}
		sources[i] = yamldoc.Source{Name: file, Data: data}
	}
	imported, err := envoyconfig.Import(sources...)
	var problems yamldoc.Errors
	switch {
	case errors.As(err, &problems):
		return &exitError{2, fmt.Sprintf("%s\n\n%s; nothing was written\n", problems, wording.Count(len(problems), "problem"))}
	case err != nil:
		return err
	case out == "":
		_, err = io.WriteString(p.out, envoyconfig.Rules(imported.Files...))
	default:
		err = p.writeImported(imported.Files, files, out)
	}
	if err == nil && len(imported.NotConverted) > 0 {
		count := wording.Count(len(imported.NotConverted), "setting")
		return &exitError{1, fmt.Sprintf("%s\n\n%s not converted\n", imported.NotConverted, count)}
	}
	return err
}

// writeImported writes all files, or none if one of them exists.
func (p *program) writeImported(imported []envoyconfig.File, files []string, dir string) error {
	type file struct{ name, text string }
	var all []file
	seen := map[string]bool{}
	for i := range imported {
		base := filepath.Base(files[i])
		name := filepath.Join(dir, strings.TrimSuffix(base, filepath.Ext(base)))
		all = append(all, file{name + ".yaml", envoyconfig.Rules(imported[i])})
		if tests := imported[i].Tests(name + ".yaml"); tests != "" {
			all = append(all, file{name + "_test.yaml", tests})
		}
	}
	for _, f := range all {
		if seen[f.name] {
			return fmt.Errorf("two input files would both be written to %s: rename one of them", f.name)
		}
		if _, err := os.Lstat(f.name); err == nil {
			return fmt.Errorf("%s already exists: move it, or choose another --dir", f.name)
		}
		seen[f.name] = true
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: servers run as other users
		return err
	}
	for _, f := range all {
		if err := os.WriteFile(f.name, []byte(f.text), 0o644); err != nil { //nolint:gosec // G306: as above
			return err
		}
		if _, err := fmt.Fprintln(p.out, f.name); err != nil {
			return err
		}
	}
	return nil
}
