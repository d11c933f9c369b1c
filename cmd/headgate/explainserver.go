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
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/headgate/headgate/internal/adminapi"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/explain"
)

const (
	// tokenVariable has the token if no file was given. There is no flag for it: other users of the machine see flags.
	tokenVariable = "HEADGATE_TOKEN"
	// maxAnswer is more than a report on as many rules as there may be.
	maxAnswer = 64 << 20
)

// adminServer is a running server as it is asked.
type adminServer struct {
	address string // as it was given, fit for the screen
	url     *url.URL
	token   string
	from    string // where the token is from; "" without one
	client  *http.Client
}

// explainThere asks a running server.
func explainThere(ctx context.Context, o *explainOptions, q *question) (*explain.Report, error) {
	s, err := openServer(o)
	if err != nil {
		return nil, err
	}
	defer s.client.CloseIdleConnections()
	r, err := s.explain(ctx, o.question(q))
	if err != nil {
		return nil, err
	}
	r.Server, r.Notes = s.address, slices.Concat(q.notes, r.Notes)
	return r, nil
}

func openServer(o *explainOptions) (*adminServer, error) {
	address, err := url.Parse(o.server)
	if err != nil || address.Host == "" || address.User != nil || address.RawQuery != "" || address.Fragment != "" ||
		address.Scheme != "http" && address.Scheme != "https" {
		return nil, errors.New("--server is no address of a server: write http://127.0.0.1:8083, or https://host:8083")
	}
	s := &adminServer{address: o.server, url: address.JoinPath(adminapi.ExplainPath)}
	if s.token, s.from, err = readToken(o.tokenFile); err != nil {
		return nil, err
	}
	if s.token != "" && address.Scheme == "http" && !isLoopback(address.Hostname()) {
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
		Timeout:   askTimeout,
		// A token is for the server that it was given for.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// readToken also says where the token is from. A server without tokens wants none.
func readToken(file string) (token, from string, err error) {
	data, err := readSecret(file)
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

func (s *adminServer) explain(ctx context.Context, q explain.Question) (*explain.Report, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, s.unreachable(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, s.unreachable(err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, s.refused(response, answer)
	}
	var r explain.Report
	switch err := json.Unmarshal(answer, &r); {
	case err == nil && r.Version > explain.Version:
		return nil, fmt.Errorf("%s is newer than this headgate, and answers in version %d: take a newer headgate", s.address,
			r.Version)
	case err != nil || r.Version != explain.Version:
		return nil, s.stranger()
	}
	return &r, nil
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
			s.address, askTimeout)
	case outer != nil:
		err = outer.Err // without the address again
	}
	return fmt.Errorf("%s cannot be asked: %w", s.address, err)
}

// refused is why a server does not say.
func (s *adminServer) refused(response *http.Response, answer []byte) error {
	var problem struct{ Detail string }
	ours := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") &&
		json.Unmarshal(answer, &problem) == nil && problem.Detail != ""
	switch {
	case response.StatusCode == http.StatusBadRequest && bytes.Contains(answer, []byte("HTTPS server")):
		return fmt.Errorf("%s wants TLS: write https://%s", s.address, s.url.Host)
	case !ours || response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusMethodNotAllowed:
		return s.stranger()
	case response.StatusCode == http.StatusUnauthorized && s.token == "":
		return fmt.Errorf("%s wants a token: give --token-file FILE or set %s; headgate token create NAME makes a token",
			s.address, tokenVariable)
	case response.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s does not know the token in %s: is its line in the file that the server's admin.tokens_file "+
			"names? headgate token create NAME makes a token and its line", s.address, s.from)
	}
	return fmt.Errorf("%s: %s", s.address, problem.Detail)
}

// stranger is whoever does not answer as our admin API does.
func (s *adminServer) stranger() error {
	return fmt.Errorf("%s answers, but not as headgate's admin API: write the address of listen.admin in the server's "+
		"config, by default http://%s", s.address, config.Default().Listen.Admin)
}
