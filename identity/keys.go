package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/redact"
)

const (
	maxKeyDocument = 1 << 20
	maxKeyHeader   = 64 << 10
	fetchTimeout   = 5 * time.Second
)

// interval determines how often keys are read: after every, and earlier if a token has an unknown key, but never twice within gap.
// Clients can forge any number of tokens, so gap protects the key server.
type interval struct{ every, gap time.Duration }

var (
	fileInterval = interval{every: 5 * time.Second, gap: time.Second}
	urlInterval  = interval{every: 5 * time.Minute, gap: 10 * time.Second}
)

// keys holds the current key ring and refreshes it from its source in the background. A request never waits for a refresh. That is
// why keys does not use the refresh of keyfunc, in which a token with an unknown key waits for the fetch.
type keys struct {
	ring       atomic.Pointer[ring]
	algorithms []string
	read       func(context.Context) ([]byte, error)
	last       []byte // the document that ring was parsed from
	log        *slog.Logger
	refreshes  chan struct{}
	stop       context.CancelFunc
	stopped    chan struct{}
}

func newKeys(j JWT, log *slog.Logger) (*keys, error) {
	k := &keys{algorithms: j.Algorithms, log: log, refreshes: make(chan struct{}, 1)}
	switch {
	case j.KeyFile != "":
		k.read = func(context.Context) ([]byte, error) { return os.ReadFile(j.KeyFile) }
		if err := k.load(context.Background()); err != nil {
			return nil, err
		}
		k.watch(fileInterval)
	case j.KeyURL != "":
		if err := checkKeyURL(j.KeyURL); err != nil {
			return nil, err
		}
		k.read = fetcher(j.KeyURL)
		k.watch(urlInterval)
	default:
		k.ring.Store(&ring{keys: []key{{key: j.Secret}}})
	}
	return k, nil
}

// refresh requests that the keys are read again as soon as the gap allows. It does not block.
func (k *keys) refresh() {
	select {
	case k.refreshes <- struct{}{}:
	default:
	}
}

// close stops the background refresh. The keys stay usable.
func (k *keys) close() {
	if k.stop != nil {
		k.stop()
		<-k.stopped
	}
}

// watch refreshes the keys in the background until close. The same error is logged only once in a row.
func (k *keys) watch(i interval) {
	ctx, stop := context.WithCancel(context.Background())
	k.stop, k.stopped = stop, make(chan struct{})
	go func() {
		defer close(k.stopped)
		logged := ""
		for ctx.Err() == nil {
			err := k.load(ctx)
			switch {
			case err == nil:
				logged = ""
			case ctx.Err() == nil:
				if logged != err.Error() {
					logged = err.Error()
					k.log.Warn("JWT keys cannot be read; keeping the previous keys", "error", logged)
				}
				k.refresh()
			}
			pause(ctx, i.gap, nil)
			pause(ctx, i.every-i.gap, k.refreshes)
		}
	}()
}

// pause waits for d, for the end of ctx, or for sooner.
func pause(ctx context.Context, d time.Duration, sooner <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-sooner:
	}
}

// load reads the document and replaces the key ring if the document has changed.
func (k *keys) load(ctx context.Context) error {
	document, err := k.read(ctx)
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	if k.last != nil && bytes.Equal(document, k.last) {
		return nil
	}
	r, err := newRing(ctx, document, k.algorithms)
	if err != nil {
		return err
	}
	k.last = document
	k.ring.Store(r)
	return nil
}

// checkKeyURL requires https, unless the host is a loopback address: an attacker on the network path could replace keys fetched
// over http, and sign tokens with its own.
func checkKeyURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("KeyURL: not a URL: must be https://host/path")
	case u.Scheme == "http" && !netaddr.IsLoopback(u.Hostname()):
		return errors.New("KeyURL: keys fetched over http can be replaced in transit: use https://, or http:// with a loopback address")
	}
	return nil
}

// fetcher returns a function that fetches keys from an address. It does not follow redirects, because the operator trusts only the
// configured server.
func fetcher(address string) func(context.Context) ([]byte, error) {
	// Fetches are too rare for keep-alive to pay off.
	client := &http.Client{
		Timeout:       fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxKeyHeader,
		},
	}
	shown := redact.Address(address)
	return func(ctx context.Context) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return nil, fmt.Errorf("%s: not a URL", shown)
		}
		response, err := client.Do(request)
		if err != nil {
			if in, ok := errors.AsType[*url.Error](err); ok { // its text contains the address with its parameters
				err = in.Err
			}
			return nil, fmt.Errorf("%s: %w", shown, err)
		}
		defer response.Body.Close() //nolint:errcheck // The body was read.
		switch code := response.StatusCode; {
		case code >= 300 && code < 400:
			return nil, fmt.Errorf("%s: status %s: redirects are not followed: configure the final address of the keys", shown, response.Status)
		case code != http.StatusOK:
			return nil, fmt.Errorf("%s: status %s", shown, response.Status)
		}
		document, err := io.ReadAll(io.LimitReader(response.Body, maxKeyDocument+1))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", shown, err)
		case len(document) > maxKeyDocument:
			return nil, fmt.Errorf("%s: response of more than %d bytes: not a JWK set", shown, maxKeyDocument)
		}
		return document, nil
	}
}
