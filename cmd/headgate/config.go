package main

import (
	"errors"
	"fmt"
	"regexp"
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
		Short: "Say what is wrong with a server's config, all of it",
		Long: `Say what is wrong with a server's config, all of it. Variables and the files that it names are looked
up where this runs. The rules that it names are not read: headgate rules validate does that.

Exit code: 0 all is well; 1 there are problems; 2 the file cannot be read.`,
		Example: "  headgate config validate /etc/headgate/config.yaml",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, files []string) error { return p.reportConfig(files, false) },
	}
}

func newConfigShow(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print what a server's config amounts to: defaults included, secrets left out",
		Long: `Print what a server's config amounts to, with defaults and values of variables, and without secrets.
Without a file it prints the defaults.

Exit code: 0 all is well; 1 there are problems; 2 the file cannot be read.`,
		Example: "  headgate config show /etc/headgate/config.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, files []string) error { return p.reportConfig(files, true) },
	}
}

// loadConfig reads a config. Problems in it are printed, and then the error is a verdict.
func (p *program) loadConfig(file string) (*config.Config, error) {
	c, err := config.Load(file)
	var r configReport
	if errors.As(err, &r.Problems) {
		return nil, p.end(&r, no())
	}
	return c, err
}

// reportConfig is about the config in the first of the files, or about the default.
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
	return p.end(&r, nil)
}

// nest puts a value where its key is.
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
		return asYAML(r.settings)
	case r.mode != headgate.Enforce:
		return "ok\nmode is " + r.mode.String() + ": this server denies nobody\n"
	}
	return "ok\n"
}

// asYAML leaves out what has no value.
func asYAML(settings []config.Setting) string {
	var b strings.Builder
	var open []string // the sections that the last line is in
	for _, s := range settings {
		value := scalar(s.Value)
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

// plainText is what YAML takes for text without quotes, also between brackets.
var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./:-]*[A-Za-z0-9_/]$`)

// scalar is a value in YAML, or "" if there is none.
func scalar(value any) string {
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
			items[i] = scalar(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(value)
}
