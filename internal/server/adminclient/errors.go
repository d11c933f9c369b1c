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

// unreachable returns the error of a call without a response, with its remedy.
func (c *Client) unreachable(err error) error {
	var authority x509.UnknownAuthorityError
	var outer *url.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: connection refused: check that headgate serve runs there and that this is listen.admin in its config",
			c.Server)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s: the server does not use TLS: write http://%s", c.Server, c.url.Host)
	case errors.As(err, &authority):
		return fmt.Errorf("%s: the certificate is signed by an unknown CA: give its certificate with --ca-file FILE", c.Server)
	case errors.As(err, &outer) && outer.Timeout():
		return fmt.Errorf("%s: no response within %s: check that this is listen.admin in the server's config and that no firewall blocks it",
			c.Server, c.Timeout)
	case outer != nil:
		err = outer.Err // without the address again
	}
	return fmt.Errorf("%s: call failed: %w", c.Server, err)
}

// listCommands are the commands that list what exists, by the beginning of the detail of a 404.
var listCommands = map[string]string{
	"rule ":    "headgate rules export",
	"version ": "headgate rules history", "token ": "headgate token list",
	"override ": "headgate override list", "exemption ": "headgate exempt list",
}

// StatusError is the error of a call that the server rejected with a problem document. Detail and Problems are the server's.
type StatusError struct {
	server   string
	Status   int `json:"-"`
	Detail   string
	Problems []struct{ Rule, Problem string }
}

func (r *StatusError) Error() string {
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

// advice returns the command that lists what exists, if the object of the call was not found.
func (r *StatusError) advice() string {
	for beginning, command := range listCommands {
		if r.Status == http.StatusNotFound && strings.HasPrefix(r.Detail, beginning) {
			return ": " + command + " lists what exists"
		}
	}
	return ""
}

// UnknownOutcomeError is the error of a call that the server may have executed: the connection broke after the call was sent, or it failed in the
// server.
type UnknownOutcomeError struct{ error }

// Unwrap returns the cause.
func (e *UnknownOutcomeError) Unwrap() error { return e.error }

// rejected returns the error of a call that was rejected with a status other than 2xx.
func (c *Client) rejected(r *reply) error {
	problem := StatusError{server: c.Server, Status: r.status}
	ours := strings.HasPrefix(r.header.Get("Content-Type"), "application/problem+json") &&
		json.Unmarshal(r.text, &problem) == nil && problem.Detail != ""
	switch {
	case r.status == http.StatusBadRequest && bytes.Contains(r.text, []byte("HTTPS server")):
		return fmt.Errorf("%s: the server requires TLS: write https://%s", c.Server, c.url.Host)
	case !ours:
		return c.notAdminAPI()
	case r.status == http.StatusUnauthorized && c.Token == "":
		return fmt.Errorf("%s: token required: give --token-file FILE or set %s; headgate token create NAME makes a token",
			c.Server, TokenVariable)
	case r.status == http.StatusUnauthorized:
		return fmt.Errorf("%s: unknown token in %s: add its line to the server's admin.tokens_file; "+
			"headgate token create NAME makes a token and its line", c.Server, c.tokenSource())
	}
	return &problem
}

// notAdminAPI returns the error of a server whose response is not one of headgate's admin API.
func (c *Client) notAdminAPI() error {
	return fmt.Errorf("%s: not headgate's admin API: write the address of listen.admin in the server's "+
		"config, by default http://%s", c.Server, config.Default().Listen.Admin)
}
