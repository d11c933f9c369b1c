package config

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/yamldoc"
)

// secrets matches the parts of lines that an error message must not show: credentials before the host of a URL, the
// parameters of a URL, a whole address of the form host=… password=…, and the value of a key that is named like a secret.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(://|address["']?[ \t]*:[ \t]*["']?(?:\w+://)?)([^\n]*)@`),
	regexp.MustCompile(`(://[^\n?]*\?|://[^\s#]*#)([^\n]+)`),
	regexp.MustCompile(`(://[^\s,"'/@:\[?#]*:)([^\d\s][^\n]*)`), // ports are numbers: this is a password without the @
	regexp.MustCompile(`((?:address|url)["']?[ \t]*:[ \t]*["']?)(\w+[ \t]*=[^\n]*)`),
	regexp.MustCompile(`(?i)((?:password|passwd|pwd|secret|token)\w*["']?[ \t]*=[ \t]*)([^\n]+)`),
	regexp.MustCompile(`(?i)((?:password|secret|token)s?["']?[ \t]*:[ \t]*["']?)([^\n]+)`),
}

// quotedSecret matches credentials that an error message quotes. The quotation may be cut off before the host.
var quotedSecret = regexp.MustCompile(`(://)[^\n]*(@|…)`)

// mask replaces each character of a secret by a star, so that columns do not move.
func mask(s string) string {
	for _, secret := range secrets {
		var b strings.Builder
		last := 0
		for _, m := range secret.FindAllStringSubmatchIndex(s, -1) {
			b.WriteString(s[last:m[4]])
			b.WriteString(strings.Repeat("*", utf8.RuneCountInString(s[m[4]:m[5]])))
			last = m[5]
		}
		s = b.String() + s[last:]
	}
	return s
}

// masked returns the errors of a report without secrets.
func masked(r *yamldoc.Report, s yamldoc.Source) yamldoc.Errors {
	s.Data = []byte(mask(string(s.Data)))
	all := r.Errors([]yamldoc.Source{s})
	for _, e := range all {
		e.Problem = redact.Text(quotedSecret.ReplaceAllString(e.Problem, "$1***$2"))
	}
	return all
}
