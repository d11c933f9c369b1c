// Package adminclient calls the admin API of a running server for the headgate command, with the types of package adminapi. It waits
// when the server throttles it, reads lists page by page, and returns errors that name the cause and the remedy.
//
// It knows no flags and prints nothing. The remedies in its errors are written for users of the command.
package adminclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/server/config"
)

const (
	// TokenVariable is the environment variable with the token, used if no file is given. There is no flag for the token, since
	// other users of the machine can see flags.
	TokenVariable = "HEADGATE_TOKEN"
	// ServerVariable is the environment variable with the server's URL, used if no --server is given.
	ServerVariable = "HEADGATE_SERVER"
	// maxResponse limits the size of a response. A report on the maximum number of rules is smaller.
	maxResponse = 64 << 20
	// maxRetryAfter is the longest Retry-After that call waits for. A longer one is returned as an error.
	maxRetryAfter = 10 * time.Second
)

// Options configure a Client.
type Options struct {
	// Server is the URL of the admin API.
	Server string
	// TokenFile is the file with the token. Without it Token is used, the value of TokenVariable. Both are empty for a server
	// that requires no token.
	TokenFile, Token string
	// CAFile has the CA certificates that signed the server's certificate, in PEM. If it is empty, the machine's CAs are used.
	CAFile string
	// CertFile and KeyFile are the client certificate and its key, in PEM, for a server with listen.tls.client_ca_file.
	CertFile, KeyFile string
	// Timeout applies to each call.
	Timeout time.Duration
}

// tokenSource returns where the token was read from: the file, or the environment variable.
func (o *Options) tokenSource() string { return cmp.Or(o.TokenFile, TokenVariable) }

// Client calls one server. Close it after the last call.
type Client struct {
	Options
	url  *url.URL
	http *http.Client
}

// New returns a client. It does not connect.
func New(o Options) (*Client, error) {
	address, err := url.Parse(o.Server)
	if err != nil || address.Host == "" || address.User != nil || address.RawQuery != "" || address.Fragment != "" ||
		address.Scheme != "http" && address.Scheme != "https" {
		return nil, errors.New("--server or " + ServerVariable + ": invalid URL: write http://127.0.0.1:8083 or https://host:8083")
	}
	if o.TokenFile != "" {
		data, err := config.ReadSecret(o.TokenFile)
		if err != nil {
			return nil, err
		}
		o.Token = string(data)
	}
	o.Token = strings.TrimSpace(o.Token)
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%s: not a single token: keep only the word that begins with hgt_", o.tokenSource())
	}
	if o.Token != "" && address.Scheme == "http" && !netaddr.IsLoopback(address.Hostname()) {
		return nil, fmt.Errorf("%s: would send the token unencrypted to another machine: write https://%s", o.Server, address.Host)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		authorities, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s: no PEM certificate found", o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		own, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-file %q and --key-file %q: %w", o.CertFile, o.KeyFile, err)
		}
		secure.Certificates = []tls.Certificate{own}
	}
	return &Client{o, address, &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure},
		Timeout:   o.Timeout,
		// Redirects are not followed, so that the token is sent to no other server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call sends a request with the JSON of in, and decodes the response into out. Either may be nil. After a 429 it waits for the time
// in Retry-After and tries again. If the server rejects the call, the error is a *StatusError; if it may have executed it all the same, the
// error is an *UnknownOutcomeError.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	r, err := c.send(ctx, method, path, body)
	for err == nil && r.status == http.StatusTooManyRequests {
		seconds, invalid := strconv.Atoi(r.header.Get("Retry-After"))
		pause := time.Duration(seconds) * time.Second
		if invalid != nil || pause > maxRetryAfter {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		r, err = c.send(ctx, method, path, body)
	}
	switch {
	case err != nil && r.sent:
		return &UnknownOutcomeError{c.unreachable(err)}
	case err != nil:
		return c.unreachable(err)
	case r.status >= http.StatusInternalServerError && r.status != http.StatusNotImplemented:
		return &UnknownOutcomeError{c.rejected(&r)}
	case r.status/100 != 2:
		return c.rejected(&r)
	case out != nil && json.Unmarshal(r.text, out) != nil:
		return c.notAdminAPI()
	}
	return nil
}

// get does the same as call and returns the response as a T.
func get[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	err = c.call(ctx, method, path, in, &out)
	return out, err
}

// reply is the response of a server.
type reply struct {
	sent   bool // whether the server may have received the request
	status int
	header http.Header
	text   []byte
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (r reply, err error) {
	address := strings.TrimSuffix(c.url.String(), "/") + path
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := c.http.Do(request.WithContext(httptrace.WithClientTrace(ctx, trace)))
	r.sent = connected.Load()
	if err != nil {
		return r, err
	}
	defer response.Body.Close() //nolint:errcheck // the body was only read
	r.status, r.header = response.StatusCode, response.Header
	r.text, err = io.ReadAll(io.LimitReader(response.Body, maxResponse))
	return r, err
}

// list reads all pages, up to limit items, and reports whether there are more. key is the JSON key of the list in each page.
func list[T any](ctx context.Context, c *Client, path, key string, filter url.Values, limit int) (
	all []T, more bool, err error,
) {
	filter.Set("limit", strconv.Itoa(min(limit, 500)))
	all = []T{}
	for {
		page, err := get[map[string]json.RawMessage](ctx, c, http.MethodGet, path+"?"+filter.Encode(), nil)
		if err != nil {
			return nil, false, err
		}
		var items []T
		var next string
		if json.Unmarshal(page[key], &items) != nil || page["next"] != nil && json.Unmarshal(page["next"], &next) != nil {
			return nil, false, c.notAdminAPI()
		}
		all = append(all, items...)
		if len(all) > limit || len(all) == limit && next != "" {
			return all[:limit], true, nil
		}
		if next == "" {
			return all, false, nil
		}
		filter.Set("cursor", next)
	}
}
