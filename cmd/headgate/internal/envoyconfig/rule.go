package envoyconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
)

// rule is a rule to be written.
type rule struct {
	id, name string
	path     descriptorPath
	by       []string
	when     string
	requests int64
	unit     string
	shadow   bool
}

func newRule(path descriptorPath, x *descriptor) rule {
	r := rule{path: path, name: x.limit.name, unit: x.limit.unit, shadow: x.shadow || x.quota}
	r.requests = min(x.limit.requests, headgate.MaxCost)
	var when []string
	for i := range path.steps {
		s := &path.steps[i]
		if s.counted() {
			r.by = append(r.by, "descriptor."+s.attribute)
		}
		when = append(when, s.conditions()...)
	}
	r.when = strings.Join(when, " && ")
	return r
}

// valid reports whether the condition is within the cost limit of rules.
func (r *rule) valid() bool {
	if r.when == "" {
		return true
	}
	var b strings.Builder
	b.WriteString("rules:\n")
	r.write(&b)
	_, err := ruledoc.Parse("rule", []byte(b.String()))
	return err == nil
}

func (r *rule) window() time.Duration { return windows[r.unit] }

// maxIDLength is the maximum length of an ID without the suffix of unique.
const maxIDLength = 120

// idOf returns the ID of a path's rule: messaging/message_type.marketing/to_number. A wildcard becomes three dots.
func idOf(path descriptorPath) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_./", r):
			return r
		case r == '=':
			return '.'
		}
		return '-'
	}, strings.ReplaceAll(path.String(), "*", "..."))
	if len(id) > maxIDLength {
		sum := sha256.Sum256([]byte(path.String()))
		tail := "-" + hex.EncodeToString(sum[:4])
		id = id[:maxIDLength-len(tail)] + tail
	}
	return id
}

// unique returns the name, with a number appended if it is in use.
func unique(used map[string]bool, name string) string {
	free := name
	for i := 2; used[free]; i++ {
		free = name + "-" + strconv.Itoa(i)
	}
	used[free] = true
	return free
}

// Rules returns the rules of the files as one YAML document.
func Rules(files ...File) string {
	var b strings.Builder
	names := make([]string, len(files))
	var all []rule
	for i, f := range files {
		names[i] = filepath.Base(f.name)
		all = append(all, f.rules...)
	}
	fmt.Fprintf(&b, "# Imported from %s of envoyproxy/ratelimit.\n", strings.Join(names, ", "))
	if len(all) == 0 {
		b.WriteString("rules: []\n")
		return b.String()
	}
	b.WriteString("rules:\n")
	for i := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		all[i].write(&b)
	}
	return b.String()
}

func (r *rule) write(b *strings.Builder) {
	line := func(indent int, key, value string) { fmt.Fprintf(b, "%*s%s: %s\n", indent, "", key, value) }
	line(2, "- id", quoteYAML(r.id))
	if r.name != "" {
		line(4, "labels", "{name: "+quoteYAML(r.name)+"}")
	}
	b.WriteString("    match:\n")
	line(6, "domain", quoteYAML(r.path.domain))
	line(6, "entries", quoteYAML(r.path.entries()))
	for i := range r.path.steps {
		s := &r.path.steps[i]
		if p := s.pattern(); p != "" {
			line(6, quoteYAML("descriptor."+s.attribute), p)
		}
	}
	if r.when != "" {
		line(4, "when", "'"+strings.ReplaceAll(r.when, "'", "''")+"'")
	}
	if r.requests == 0 {
		// A limit cannot be 0, but a rule can require an attribute that no request has.
		line(4, "by", "[header.none] # no descriptor has it: all requests are denied")
		line(4, "on_missing", "deny")
		line(4, "limit", "1/second")
	} else {
		line(4, "by", quoteYAMLList(r.by))
		line(4, "limit", fmt.Sprintf("{rate: %d/%s, align: clock}%s", r.requests, r.per(), r.comment()))
		line(4, "algorithm", "fixed_window")
	}
	if r.shadow {
		line(4, "mode", "shadow")
	}
	line(4, "expose", strconv.FormatBool(r.requests > 0))
}

// per returns the unit of the rate. Months and years are written in days.
func (r *rule) per() string {
	if days := int(r.window() / day); days > 7 {
		return strconv.Itoa(days) + "d"
	}
	return r.unit
}

func (r *rule) comment() string {
	switch r.unit {
	case "week":
		return " # Thursday to Wednesday, as in envoyproxy/ratelimit"
	case "month":
		return fmt.Sprintf(" # 30 days, as in envoyproxy/ratelimit; for calendar months: {quota: %d, calendar: month}", r.requests)
	}
	return ""
}
