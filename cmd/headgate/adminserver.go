package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/server/config"
)

const (
	// tokenVariable has the token if no file was given. There is no flag for it: other users of the machine see flags.
	tokenVariable = "HEADGATE_TOKEN"
	// serverVariable has the server that commands ask if none was given.
	serverVariable = "HEADGATE_SERVER"
	// maxAnswer is more than a report on as many rules as there may be.
	maxAnswer = 64 << 20
	// changeTimeout is longer than a server waits for its database, so that it can say that this is away.
	changeTimeout = 30 * time.Second
	// maxPause is how long a server may ask to wait before it is asked again.
	maxPause = 10 * time.Second
)

// serverOptions are the flags that say which server to ask.
type serverOptions struct{ server, tokenFile, caFile string }

func (o *serverOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.server, "server", "", "`ADDRESS` of a server's listen.admin, http://127.0.0.1:8083; without it what "+
		serverVariable+" says")
	flags.StringVar(&o.tokenFile, "token-file", "", "`FILE` with the token for the server")
	flags.StringVar(&o.caFile, "ca-file", "", "`FILE` with who signed the server's certificate, if that is nobody known")
}

// fromVariable takes the server of the environment if no --server was given, not even an empty one.
func (o *serverOptions) fromVariable(cmd *cobra.Command) {
	if !cmd.Flags().Changed("server") {
		o.server = os.Getenv(serverVariable)
	}
}

// adminServer is a running server as it is asked.
type adminServer struct {
	address string // as it was given, fit for the screen
	url     *url.URL
	token   string
	from    string   // where the token is from; "" without one
	flags   []string // by which it is asked
	client  *http.Client
}

// asking makes a command one that asks a server, and gives it the flags for that.
func asking(cmd *cobra.Command, do func(ctx context.Context, s *adminServer, args []string) error) *cobra.Command {
	var o serverOptions
	o.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.fromVariable(cmd); o.server == "" {
			return usage(cmd, errors.New("say which server to ask: give --server ADDRESS or set "+serverVariable))
		}
		s, err := o.open(changeTimeout)
		if err != nil {
			return err
		}
		defer s.client.CloseIdleConnections()
		var wrong *usageError
		if err = do(cmd.Context(), s, args); errors.As(err, &wrong) {
			return usage(cmd, wrong.error)
		}
		return err
	}
	return cmd
}

// usageError is about what was typed.
type usageError struct{ error }

func (o *serverOptions) open(timeout time.Duration) (*adminServer, error) {
	given := withScheme(o.server, "http://")
	address, err := url.Parse(given)
	if err != nil || address.Host == "" || address.User != nil || address.RawQuery != "" || address.Fragment != "" ||
		address.Scheme != "http" && address.Scheme != "https" {
		return nil, errors.New("--server or " + serverVariable + " is no address of a server: write http://127.0.0.1:8083, or https://host:8083")
	}
	s := &adminServer{address: given, url: address, flags: o.given(given)}
	if s.token, s.from, err = readToken(o.tokenFile); err != nil {
		return nil, err
	}
	if s.token != "" && address.Scheme == "http" && !netaddr.IsLoopback(address.Hostname()) {
		return nil, fmt.Errorf("%s would carry the token in the clear to another machine: write https://%s", s.address,
			address.Host)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.caFile != "" {
		authorities, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s has no certificate in PEM", o.caFile)
		}
	}
	s.client = &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure},
		Timeout:   timeout,
		// A token is for the server that it was given for.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// readToken also says where the token is from. A server without tokens wants none.
func readToken(file string) (token, from string, err error) {
	data, err := config.ReadSecret(file)
	if err != nil {
		return "", "", err
	}
	token, from = strings.TrimSpace(string(data)), file
	if file == "" {
		token, from = strings.TrimSpace(os.Getenv(tokenVariable)), tokenVariable
	}
	switch {
	case token == "":
		from = ""
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", "", fmt.Errorf("%s has more in it than a token: leave only the word that begins with hgt_", from)
	}
	return token, from, nil
}

// call sends a question and reads the answer; either may be nil. A server that is asked too often is asked again when it
// says so. What it refuses is a *refusal.
func (s *adminServer) call(ctx context.Context, method, path string, question, answer any) error {
	var body []byte
	if question != nil {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return err
		}
	}
	r, err := s.send(ctx, method, path, body)
	for err == nil && r.status == http.StatusTooManyRequests {
		seconds, wrong := strconv.Atoi(r.header.Get("Retry-After"))
		pause := time.Duration(seconds) * time.Second
		if wrong != nil || pause > maxPause {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		r, err = s.send(ctx, method, path, body)
	}
	switch {
	case err != nil:
		return s.unreachable(err)
	case r.status/100 != 2:
		return s.refused(&r)
	case answer != nil && json.Unmarshal(r.text, answer) != nil:
		return s.stranger()
	}
	return nil
}

// reply is what a server has answered.
type reply struct {
	status int
	header http.Header
	text   []byte
}

func (s *adminServer) send(ctx context.Context, method, path string, body []byte) (r reply, err error) {
	address := strings.TrimSuffix(s.url.String(), "/") + path
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	r = reply{status: response.StatusCode, header: response.Header}
	r.text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return r, err
}

// list reads pages until there are no more, or until there are most of them. Each page has its list under this key.
func list[T any](ctx context.Context, s *adminServer, path, key string, filter url.Values, most int) (
	all []T, more bool, err error,
) {
	filter.Set("limit", strconv.Itoa(min(most, 500)))
	all = []T{}
	for {
		var page map[string]json.RawMessage
		if err := s.call(ctx, http.MethodGet, path+"?"+filter.Encode(), nil, &page); err != nil {
			return nil, false, err
		}
		var items []T
		var next string
		if json.Unmarshal(page[key], &items) != nil || page["next"] != nil && json.Unmarshal(page["next"], &next) != nil {
			return nil, false, s.stranger()
		}
		all = append(all, items...)
		if len(all) > most || len(all) == most && next != "" {
			return all[:most], true, nil
		}
		if next == "" {
			return all, false, nil
		}
		filter.Set("cursor", next)
	}
}

// unreachable is why there is no answer, and what to look at.
func (s *adminServer) unreachable(err error) error {
	var authority x509.UnknownAuthorityError
	var outer *url.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s: is headgate serve running there, and is this listen.admin of its config?",
			s.address)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s answers without TLS: write http://%s", s.address, s.url.Host)
	case errors.As(err, &authority):
		return fmt.Errorf("%s has a certificate that nobody known has signed: give --ca-file FILE with who did", s.address)
	case errors.As(err, &outer) && outer.Timeout():
		return fmt.Errorf("%s did not answer within %s: is it the address of listen.admin, and is the way to it open?",
			s.address, s.client.Timeout)
	case outer != nil:
		err = outer.Err // without the address again
	}
	return fmt.Errorf("%s cannot be asked: %w", s.address, err)
}

// whereToLook is for those who ask for what is not there, by how the server begins to say so.
var whereToLook = map[string]string{
	"rule ": "headgate rules export", "this server has no rule ": "headgate rules export",
	"version ": "headgate rules history", "token ": "headgate token list",
	"override ": "headgate override list", "exemption ": "headgate exempt list",
}

// refusal is why a server does not do it, in its words.
type refusal struct {
	address  string
	status   int
	Detail   string
	Problems []struct{ Rule, Problem string }
}

func (r *refusal) Error() string {
	text := r.address + ": " + r.Detail + r.advice()
	if len(r.Problems) < 2 {
		return text
	}
	lines := []string{text}
	for _, p := range r.Problems {
		lines = append(lines, "  "+strings.TrimPrefix(p.Rule+": "+p.Problem, ": "))
	}
	return strings.Join(lines, "\n")
}

func (r *refusal) advice() string {
	for beginning, command := range whereToLook {
		if r.status == http.StatusNotFound && strings.HasPrefix(r.Detail, beginning) {
			return ": " + command + " shows what there is"
		}
	}
	return ""
}

// refused is why a server does not say.
func (s *adminServer) refused(r *reply) error {
	problem := refusal{address: s.address, status: r.status}
	ours := strings.HasPrefix(r.header.Get("Content-Type"), "application/problem+json") &&
		json.Unmarshal(r.text, &problem) == nil && problem.Detail != ""
	switch {
	case r.status == http.StatusBadRequest && bytes.Contains(r.text, []byte("HTTPS server")):
		return fmt.Errorf("%s wants TLS: write https://%s", s.address, s.url.Host)
	case !ours:
		return s.stranger()
	case r.status == http.StatusUnauthorized && s.token == "":
		return fmt.Errorf("%s wants a token: give --token-file FILE or set %s; headgate token create NAME makes a token",
			s.address, tokenVariable)
	case r.status == http.StatusUnauthorized:
		return fmt.Errorf("%s does not know the token in %s: is its line in the file that the server's admin.tokens_file "+
			"names? headgate token create NAME makes a token and its line", s.address, s.from)
	}
	return &problem
}

// stranger is whoever does not answer as our admin API does.
func (s *adminServer) stranger() error {
	return fmt.Errorf("%s answers, but not as headgate's admin API: write the address of listen.admin in the server's "+
		"config, by default http://%s", s.address, config.Default().Listen.Admin)
}
