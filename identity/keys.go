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

// interval is how often keys are read: every so often, and when a token asks for it, but never twice within the gap.
// Clients can make up tokens at will, so the gap is what protects the server of the keys.
type interval struct{ every, gap time.Duration }

var (
	fileInterval = interval{every: 5 * time.Second, gap: time.Second}
	urlInterval  = interval{every: 5 * time.Minute, gap: 10 * time.Second}
)

// keys holds the ring of the day, and watches over the place it comes from. It never makes a request wait, which is why
// it does not leave the watch to keyfunc: a token with an unknown key would there wait for the fetch.
type keys struct {
	ring       atomic.Pointer[ring]
	algorithms []string
	read       func(context.Context) ([]byte, error)
	last       []byte // the document that ring was made of
	log        *slog.Logger
	asked      chan struct{}
	stop       context.CancelFunc
	stopped    chan struct{}
}

func newKeys(j JWT, log *slog.Logger) (*keys, error) {
	k := &keys{algorithms: j.Algorithms, log: log, asked: make(chan struct{}, 1)}
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

// refresh asks for the keys to be read again, soon.
func (k *keys) refresh() {
	select {
	case k.asked <- struct{}{}:
	default:
	}
}

func (k *keys) close() {
	if k.stop != nil {
		k.stop()
		<-k.stopped
	}
}

func (k *keys) watch(i interval) {
	ctx, stop := context.WithCancel(context.Background())
	k.stop, k.stopped = stop, make(chan struct{})
	go func() {
		defer close(k.stopped)
		said := ""
		for ctx.Err() == nil {
			err := k.load(ctx)
			switch {
			case err == nil:
				said = ""
			case ctx.Err() == nil:
				if said != err.Error() {
					said = err.Error()
					k.log.Warn("keys of tokens cannot be read: those at hand stay", "error", said)
				}
				k.refresh()
			}
			pause(ctx, i.gap, nil)
			pause(ctx, i.every-i.gap, k.asked)
		}
	}()
}

func pause(ctx context.Context, d time.Duration, sooner <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-sooner:
	}
}

// load makes a new ring if the document has changed.
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

// checkKeyURL wants keys to come by https: whoever is on the way could put others in their place, and sign tokens with those. To
// the same machine there is no way to be on.
func checkKeyURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("KeyURL is not a URL: write https://host/path")
	case u.Scheme == "http" && !netaddr.IsLoopback(u.Hostname()):
		return errors.New("KeyURL: keys that come by http can be replaced on the way: write https://, or http:// with a loopback address")
	}
	return nil
}

// fetcher reads keys from an address, and from no other: a redirect is not followed, because the server that answers it is not
// the one that was trusted with the keys.
func fetcher(address string) func(context.Context) ([]byte, error) {
	// The keys are asked for so rarely that a connection is not worth keeping.
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
			return nil, fmt.Errorf("%s is not a URL", shown)
		}
		response, err := client.Do(request)
		if err != nil {
			if in, ok := errors.AsType[*url.Error](err); ok { // which would say the address with its parameters
				err = in.Err
			}
			return nil, fmt.Errorf("%s: %w", shown, err)
		}
		defer response.Body.Close() //nolint:errcheck // The body was read.
		switch code := response.StatusCode; {
		case code >= 300 && code < 400:
			return nil, fmt.Errorf("%s answered %s: redirects are not followed: write the address at which the keys are", shown, response.Status)
		case code != http.StatusOK:
			return nil, fmt.Errorf("%s answered %s", shown, response.Status)
		}
		document, err := io.ReadAll(io.LimitReader(response.Body, maxKeyDocument+1))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", shown, err)
		case len(document) > maxKeyDocument:
			return nil, fmt.Errorf("%s answered more than %d bytes: a JWK set is smaller", shown, maxKeyDocument)
		}
		return document, nil
	}
}
