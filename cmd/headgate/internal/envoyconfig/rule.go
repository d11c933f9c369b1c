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

// rule is a rule as it is written.
type rule struct {
	id, name string
	way      way
	by       []string
	when     string
	requests int64
	unit     string
	shadow   bool
}

func newRule(w way, x *descriptor) rule {
	r := rule{way: w, name: x.limit.name, unit: x.limit.unit, shadow: x.shadow || x.quota}
	r.requests = min(x.limit.requests, headgate.MaxCost)
	var when []string
	for i := range w.steps {
		s := &w.steps[i]
		if s.counted() {
			r.by = append(r.by, "descriptor."+s.attribute)
		}
		when = append(when, s.conditions()...)
	}
	r.when = strings.Join(when, " && ")
	return r
}

// valid reports whether rules can hold the condition, whose cost is bounded.
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

// longest is how long an id may be, with room for a number behind it.
const longest = 120

// idOf makes an id of a way: messaging/message_type.marketing/to_number. A star becomes dots.
func idOf(w way) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_./", r):
			return r
		case r == '=':
			return '.'
		}
		return '-'
	}, strings.ReplaceAll(w.String(), "*", "..."))
	if len(id) > longest {
		sum := sha256.Sum256([]byte(w.String()))
		tail := "-" + hex.EncodeToString(sum[:4])
		id = id[:longest-len(tail)] + tail
	}
	return id
}

// unique is the name, with a number behind it if it is in use.
func unique(used map[string]bool, name string) string {
	free := name
	for i := 2; used[free]; i++ {
		free = name + "-" + strconv.Itoa(i)
	}
	used[free] = true
	return free
}

// Rules are the rules of files as one document in YAML.
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
	line(2, "- id", quoted(r.id))
	if r.name != "" {
		line(4, "labels", "{name: "+quoted(r.name)+"}")
	}
	b.WriteString("    match:\n")
	line(6, "domain", quoted(r.way.domain))
	line(6, "entries", quoted(r.way.entries()))
	for i := range r.way.steps {
		s := &r.way.steps[i]
		if p := s.pattern(); p != "" {
			line(6, quoted("descriptor."+s.attribute), p)
		}
	}
	if r.when != "" {
		line(4, "when", "'"+strings.ReplaceAll(r.when, "'", "''")+"'")
	}
	if r.requests == 0 {
		// No limit is 0, but a rule may insist on an attribute.
		line(4, "by", "[header.none] # which no descriptor has: all are denied")
		line(4, "on_missing", "deny")
		line(4, "limit", "1/second")
	} else {
		line(4, "by", quotedList(r.by))
		line(4, "limit", fmt.Sprintf("{rate: %d/%s, align: clock}%s", r.requests, r.per(), r.remark()))
		line(4, "algorithm", "fixed_window")
	}
	if r.shadow {
		line(4, "mode", "shadow")
	}
	line(4, "expose", strconv.FormatBool(r.requests > 0))
}

// per is the unit in a rate, where a month and a year are days.
func (r *rule) per() string {
	if days := int(r.window() / day); days > 7 {
		return strconv.Itoa(days) + "d"
	}
	return r.unit
}

func (r *rule) remark() string {
	switch r.unit {
	case "week":
		return " # from Thursday to Wednesday, as there"
	case "month":
		return fmt.Sprintf(" # 30 days, as there; of the calendar: {quota: %d, calendar: month}", r.requests)
	}
	return ""
}
