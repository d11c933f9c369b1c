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

// fromEnvoy is the one kind of config that can be imported.
const fromEnvoy = "envoy-ratelimit"

func newImport(p *program) *cobra.Command {
	var from, out string
	cmd := &cobra.Command{
		Use:   "import --from envoy-ratelimit [--out DIR] FILE...",
		Short: "Make rules of another limiter's config",
		Long: `Make rules of configs of envoyproxy/ratelimit, for a server that answers Envoy in its place. The rules go to
standard output as one document or, with --out, for each FILE to DIR/FILE.yaml, with tests of them in
DIR/FILE_test.yaml. Files of one domain are read as one. What rules cannot say is told, with what to do instead.

Exit code: 0 all is carried over; 1 something is not; 2 a file cannot be read or written.`,
		Example: "  headgate rules import --from envoy-ratelimit --out rules config/*.yaml\n" +
			"  headgate rules test rules/*_test.yaml",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if from != fromEnvoy {
				return usage(cmd, fmt.Errorf("--from %q: write --from %s, the one that is known", from, fromEnvoy))
			}
			return p.importRules(files, out)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`KIND` of config: "+fromEnvoy)
	cmd.Flags().StringVar(&out, "out", "", "`DIR` for rules and tests; files that are there stay as they are")
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
		return &exitError{2, fmt.Sprintf("%s\n\n%s; nothing is written\n", problems, wording.Count(len(problems), "problem"))}
	case err != nil:
		return err
	case out == "":
		_, err = io.WriteString(p.out, envoyconfig.Rules(imported.Files...))
	default:
		err = p.writeImported(imported.Files, files, out)
	}
	if err == nil && len(imported.Left) > 0 {
		count := wording.Count(len(imported.Left), "thing")
		return &exitError{1, fmt.Sprintf("%s\n\n%s not carried over\n", imported.Left, count)}
	}
	return err
}

// writeImported writes all files or, if one of them is there already, none.
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
			return fmt.Errorf("two files would become %s: rename one of them", f.name)
		}
		if _, err := os.Lstat(f.name); err == nil {
			return fmt.Errorf("%s is there already and stays as it is: move it away, or choose another --out", f.name)
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
