package adminclient

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/headgate/headgate/internal/server/config"
)

// unreachable is why there is no answer, and what to look at.
func (c *Client) unreachable(err error) error {
	var authority x509.UnknownAuthorityError
	var outer *url.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s: is headgate serve running there, and is this listen.admin of its config?",
			c.Server)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s answers without TLS: write http://%s", c.Server, c.url.Host)
	case errors.As(err, &authority):
		return fmt.Errorf("%s has a certificate that nobody known has signed: give --ca-file FILE with who did", c.Server)
	case errors.As(err, &outer) && outer.Timeout():
		return fmt.Errorf("%s did not answer within %s: is it the address of listen.admin, and is the way to it open?",
			c.Server, c.Timeout)
	case outer != nil:
		err = outer.Err // without the address again
	}
	return fmt.Errorf("%s cannot be asked: %w", c.Server, err)
}

// whereToLook is for those who ask for what is not there, by how the server begins to say so.
var whereToLook = map[string]string{
	"rule ": "headgate rules export", "this server has no rule ": "headgate rules export",
	"version ": "headgate rules history", "token ": "headgate token list",
	"override ": "headgate override list", "exemption ": "headgate exempt list",
}

// DenialError is why a server does not do it, in its words.
type DenialError struct {
	server   string
	Status   int `json:"-"`
	Detail   string
	Problems []struct{ Rule, Problem string }
}

func (r *DenialError) Error() string {
	text := r.server + ": " + r.Detail + r.advice()
	if len(r.Problems) < 2 {
		return text
	}
	lines := []string{text}
	for _, p := range r.Problems {
		lines = append(lines, "  "+strings.TrimPrefix(p.Rule+": "+p.Problem, ": "))
	}
	return strings.Join(lines, "\n")
}

func (r *DenialError) advice() string {
	for beginning, command := range whereToLook {
		if r.Status == http.StatusNotFound && strings.HasPrefix(r.Detail, beginning) {
			return ": " + command + " shows what there is"
		}
	}
	return ""
}

// denied is why a server does not say.
func (c *Client) denied(r *reply) error {
	problem := DenialError{server: c.Server, Status: r.status}
	ours := strings.HasPrefix(r.header.Get("Content-Type"), "application/problem+json") &&
		json.Unmarshal(r.text, &problem) == nil && problem.Detail != ""
	switch {
	case r.status == http.StatusBadRequest && bytes.Contains(r.text, []byte("HTTPS server")):
		return fmt.Errorf("%s wants TLS: write https://%s", c.Server, c.url.Host)
	case !ours:
		return c.stranger()
	case r.status == http.StatusUnauthorized && c.Token == "":
		return fmt.Errorf("%s wants a token: give --token-file FILE or set %s; headgate token create NAME makes a token",
			c.Server, TokenVariable)
	case r.status == http.StatusUnauthorized:
		return fmt.Errorf("%s does not know the token in %s: is its line in the file that the server's admin.tokens_file "+
			"names? headgate token create NAME makes a token and its line", c.Server, c.tokenPlace())
	}
	return &problem
}

// stranger is whoever does not answer as our admin API does.
func (c *Client) stranger() error {
	return fmt.Errorf("%s answers, but not as headgate's admin API: write the address of listen.admin in the server's "+
		"config, by default http://%s", c.Server, config.Default().Listen.Admin)
}
