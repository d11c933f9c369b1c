// Package adminclient asks the admin API of a running server on behalf of the headgate command, in the types of package adminapi: it
// waits when it is asked to, reads lists page by page, and says why there is no answer and what to do.
//
// It knows no flags and prints nothing. The remedies in its errors are those of the command's users.
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
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/server/config"
)

const (
	// TokenVariable has the token if no file was given. There is no flag for it: other users of the machine see flags.
	TokenVariable = "HEADGATE_TOKEN"
	// ServerVariable has the server that commands ask if none was given.
	ServerVariable = "HEADGATE_SERVER"
	// maxAnswer is more than a report on as many rules as there may be.
	maxAnswer = 64 << 20
	// maxPause is how long a server may ask to wait before it is asked again.
	maxPause = 10 * time.Second
)

// Options say which server to ask, and how.
type Options struct {
	// Server is a URL.
	Server string
	// TokenFile has the token; without it Token has, which is from TokenVariable. A server without tokens wants none.
	TokenFile, Token string
	// CAFile has who signed the server's certificate, in PEM; "" if that is known to the machine.
	CAFile string
	// Timeout is for each call.
	Timeout time.Duration
}

// tokenPlace is where the token is from.
func (o *Options) tokenPlace() string { return cmp.Or(o.TokenFile, TokenVariable) }

// Client asks one server. Close it when all is asked.
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
		return nil, errors.New("--server or " + ServerVariable + " is no address of a server: write http://127.0.0.1:8083, or https://host:8083")
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
		return nil, fmt.Errorf("%s has more in it than a token: leave only the word that begins with hgt_", o.tokenPlace())
	}
	if o.Token != "" && address.Scheme == "http" && !netaddr.IsLoopback(address.Hostname()) {
		return nil, fmt.Errorf("%s would carry the token in the clear to another machine: write https://%s", o.Server, address.Host)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		authorities, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s has no certificate in PEM", o.CAFile)
		}
	}
	return &Client{o, address, &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure},
		Timeout:   o.Timeout,
		// A token is for the server that it was given for.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call sends a question and reads the answer; either may be nil. A server that is asked too often is asked again when it
// says so. What it denies is a *DenialError.
func (c *Client) call(ctx context.Context, method, path string, question, answer any) error {
	var body []byte
	if question != nil {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return err
		}
	}
	r, err := c.send(ctx, method, path, body)
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
		r, err = c.send(ctx, method, path, body)
	}
	switch {
	case err != nil:
		return c.unreachable(err)
	case r.status/100 != 2:
		return c.denied(&r)
	case answer != nil && json.Unmarshal(r.text, answer) != nil:
		return c.stranger()
	}
	return nil
}

// ask is call for an answer of a type.
func ask[T any](ctx context.Context, c *Client, method, path string, question any) (answer T, err error) {
	err = c.call(ctx, method, path, question, &answer)
	return answer, err
}

// reply is what a server has answered.
type reply struct {
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
	response, err := c.http.Do(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	r = reply{status: response.StatusCode, header: response.Header}
	r.text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return r, err
}

// list reads pages until there are no more, or until there are most of them. Each page has its list under this key.
func list[T any](ctx context.Context, c *Client, path, key string, filter url.Values, most int) (
	all []T, more bool, err error,
) {
	filter.Set("limit", strconv.Itoa(min(most, 500)))
	all = []T{}
	for {
		page, err := ask[map[string]json.RawMessage](ctx, c, http.MethodGet, path+"?"+filter.Encode(), nil)
		if err != nil {
			return nil, false, err
		}
		var items []T
		var next string
		if json.Unmarshal(page[key], &items) != nil || page["next"] != nil && json.Unmarshal(page["next"], &next) != nil {
			return nil, false, c.stranger()
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
