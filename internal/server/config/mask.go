package config

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/yamldoc"
)

// secrets are the parts of lines that nobody else should see, though an error may be about them: what stands before the
// host in an address, the parameters of one, all of an address of the form host=… password=…, and what is written below a key
// for a secret although there is none.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(://|address["']?[ \t]*:[ \t]*["']?(?:\w+://)?)([^\n]*)@`),
	regexp.MustCompile(`(://[^\n?]*\?|://[^\s#]*#)([^\n]+)`),
	regexp.MustCompile(`(://[^\s,"'/@:\[?#]*:)([^\d\s][^\n]*)`), // a port is a number: this is a password without its @
	regexp.MustCompile(`((?:address|url)["']?[ \t]*:[ \t]*["']?)(\w+[ \t]*=[^\n]*)`),
	regexp.MustCompile(`(?i)((?:password|passwd|pwd|secret|token)\w*["']?[ \t]*=[ \t]*)([^\n]+)`),
	regexp.MustCompile(`(?i)((?:password|secret|token)s?["']?[ \t]*:[ \t]*["']?)([^\n]+)`),
}

// quotedSecret is one in what an error quotes, where the host may have been cut off.
var quotedSecret = regexp.MustCompile(`(://)[^\n]*(@|…)`)

// mask puts a star in the place of each character of a secret, so that columns stay.
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

// masked are the errors of a report without secrets.
func masked(r *yamldoc.Report, s yamldoc.Source) yamldoc.Errors {
	s.Data = []byte(mask(string(s.Data)))
	all := r.Errors([]yamldoc.Source{s})
	for _, e := range all {
		e.Problem = redact.Text(quotedSecret.ReplaceAllString(e.Problem, "$1***$2"))
	}
	return all
}
