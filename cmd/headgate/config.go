package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/internal/yamldoc"
)

// configReport is the JSON of "config validate" and "config show".
type configReport struct {
	OK bool `json:"ok"`
	// Config has every key with its value, without secrets. It is null if there are problems.
	Config   map[string]any `json:"config"`
	Problems yamldoc.Errors `json:"problems"`

	settings []config.Setting
	mode     headgate.Mode
	show     bool
}

func newConfigValidate(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Validate a server config and report all problems",
		Long: `Validate a server config and report all problems. Environment variables and referenced files are resolved on this
machine. The rule files are not read; use headgate rules validate for them.

Exit codes:
  0  the config is valid
  1  the config has problems
  2  the file cannot be read`,
		Example: "  headgate config validate /etc/headgate/config.yaml",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, files []string) error { return p.reportConfig(files, false) },
	}
}

func newConfigShow(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print the effective config, with defaults and without secrets",
		Long: `Print the effective config: defaults included, environment variables expanded, secrets omitted. Without FILE, print the
defaults.

Exit codes:
  0  the config is valid
  1  the config has problems
  2  the file cannot be read`,
		Example: "  headgate config show /etc/headgate/config.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, files []string) error { return p.reportConfig(files, true) },
	}
}

// loadConfig reads a config. If it has problems, loadConfig prints them and returns failure().
func (p *program) loadConfig(file string) (*config.Config, error) {
	c, err := config.Load(file)
	var r configReport
	if errors.As(err, &r.Problems) {
		return nil, p.finish(&r, failure())
	}
	return c, err
}

// reportConfig reports on the config in files[0], or on the default config if files is empty.
func (p *program) reportConfig(files []string, show bool) (err error) {
	c := config.Default()
	if len(files) > 0 {
		if c, err = p.loadConfig(files[0]); err != nil {
			return err
		}
	}
	r := configReport{
		OK: true, Config: map[string]any{}, Problems: yamldoc.Errors{}, settings: c.Settings(), mode: c.Mode, show: show,
	}
	for _, s := range r.settings {
		nest(r.Config, strings.Split(s.Key, "."), s.Value)
	}
	return p.finish(&r, nil)
}

// nest stores a value at its key path.
func nest(into map[string]any, key []string, value any) {
	if len(key) == 1 {
		into[key[0]] = value
		return
	}
	below, ok := into[key[0]].(map[string]any)
	if !ok {
		below = map[string]any{}
		into[key[0]] = below
	}
	nest(below, key[1:], value)
}

func (r *configReport) text() string {
	switch {
	case !r.OK:
		return fmt.Sprintf("%s\n\n%s\n", r.Problems, wording.Count(len(r.Problems), "problem"))
	case r.show:
		return formatYAML(r.settings)
	case r.mode != headgate.Enforce:
		return "ok\nmode is " + r.mode.String() + ": this server denies no requests\n"
	}
	return "ok\n"
}

// formatYAML writes the settings as nested YAML and omits empty values.
func formatYAML(settings []config.Setting) string {
	var b strings.Builder
	var open []string // the sections of the last line written
	for _, s := range settings {
		value := formatValue(s.Value)
		if value == "" {
			continue
		}
		path := strings.Split(s.Key, ".")
		sections := path[:len(path)-1]
		same := 0
		for same < min(len(open), len(sections)) && open[same] == sections[same] {
			same++
		}
		for i := same; i < len(sections); i++ {
			b.WriteString(strings.Repeat("  ", i) + sections[i] + ":\n")
		}
		open = sections
		b.WriteString(strings.Repeat("  ", len(sections)) + path[len(path)-1] + ": " + value + "\n")
	}
	return b.String()
}

// plainText matches strings that need no quotes in YAML, inside brackets as well.
var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./:-]*[A-Za-z0-9_/]$`)

// formatValue returns a value as YAML, or "" if the value is empty.
func formatValue(value any) string {
	switch v := value.(type) {
	case string:
		if v == "" || plainText.MatchString(v) && v != "true" && v != "false" && v != "null" {
			return v
		}
		return strconv.Quote(strings.ReplaceAll(v, "${", "$${"))
	case []string:
		if len(v) == 0 {
			return ""
		}
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = formatValue(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]map[string]any:
		return formatMapping(v)
	case map[string]any:
		return formatMapping(v)
	}
	return fmt.Sprint(value)
}

// formatMapping returns a mapping in braces, in the order of its keys, or "" if it is empty.
func formatMapping[V any](values map[string]V) string {
	if len(values) == 0 {
		return ""
	}
	entries := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		entries = append(entries, formatValue(key)+": "+formatValue(values[key]))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}
