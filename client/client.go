package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const defaultTimeout = 100 * time.Millisecond

// Options configures a Client.
type Options struct {
	// Addresses are the servers, as host:port. At least one is required. The client opens one connection to each and spreads
	// checks over the available servers.
	Addresses []string
	// TLS configures the connections, including a client certificate if the servers require one. The default (nil) is plain
	// text.
	TLS *tls.Config
	// Token is sent with each call, for servers with listen.tokens_file. Without TLS it is sent in clear text. The default is none.
	Token string
	// Timeout is the deadline of each call. The default (0) is 100 ms. The deadline of the caller's context does not shorten it.
	Timeout time.Duration
	// OnFailure decides requests if no server does: headgate.FailDeny denies them, every other value, including the default,
	// allows them.
	OnFailure headgate.OnStoreFailure
	// TraceParent returns the trace of a call in the format of the W3C header traceparent, or "" for none. With OpenTelemetry, a
	// propagator writes it. The servers use it for their traces and logs. The default (nil) sends none.
	TraceParent func(ctx context.Context) string
	// Log receives a warning when a server becomes unavailable and a message when it recovers. The default is slog.Default().
	Log *slog.Logger
}

// Client checks requests with servers. Use Check to decide and charge a request, Begin if you report its end, Peek to decide it without
// charging, and Reserve with Commit or Cancel if the cost is known only afterwards. It is safe for concurrent use. Create one Client and share it, because
// it owns the connections.
type Client struct {
	options Options
	started time.Time
	stop    context.CancelFunc
	running sync.WaitGroup

	waiters sync.Pool
	turn    atomic.Uint32
	// usable are the links that checks are sent on. It is never nil.
	usable atomic.Pointer[[]*link]
	// attributes is nil until a server has reported the attributes of its rules.
	attributes atomic.Pointer[[]string]

	mu             sync.Mutex
	links          map[*link]struct{}   // the connected links, without the retired ones
	ruleAttributes map[*server][]string // as last reported by each server
	starting       int                  // servers whose first connection attempt has not finished
	changed        chan struct{}        // closed when one of these fields changes
	closed         bool
}

// New returns a Client. It does not wait for connections; the first checks do, within their deadline. Close the Client when it is no
// longer needed.
func New(o Options) (*Client, error) {
	if len(o.Addresses) == 0 {
		return nil, errors.New("client: Addresses: required: list at least one server, as host:port")
	}
	for _, address := range o.Addresses {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return nil, fmt.Errorf("client: Addresses: %q: must be host:port, such as headgate-1:8081", address)
		}
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("client: Timeout %v: must not be negative: omit it for %v", o.Timeout, defaultTimeout)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{
		options: o, started: time.Now(), stop: stop,
		links: map[*link]struct{}{}, ruleAttributes: map[*server][]string{}, starting: len(o.Addresses), changed: make(chan struct{}),
	}
	c.waiters.New = func() any { return newWaiter() }
	c.usable.Store(&[]*link{})
	for _, address := range o.Addresses {
		s := &server{client: c, address: address}
		c.running.Go(func() { s.run(ctx) })
	}
	return c, nil
}

// Close closes all connections and waits until they are closed. OnFailure decides pending and later checks. The servers release the
// units of concurrency limits of all requests in flight.
func (c *Client) Close() {
	c.update(func() { c.closed = true })
	c.stop()
	c.running.Wait()
}

// Check decides a request and charges it, like headgate.Limiter.Check. The error is nil unless the request itself is invalid: it
// names an unknown rule or is larger than the servers accept. A request is charged even if ctx is done; Check waits for the response
// up to Options.Timeout.
func (c *Client) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.check(ctx, &req, false)
}

// Begin decides a request as Check does, and applies concurrency limits as well, like headgate.Limiter.Begin. Call Decision.Done when
// the request has ended, even if ctx is done: it does not wait.
//
// The server has the units, for as long as the connection lasts. If the connection breaks or the server stops, the server releases
// them: the requests that had them run on, and until they end, the limit may be exceeded by as many. If OnFailure allowed the request,
// it has no units.
func (c *Client) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return c.check(ctx, &req, true)
}

func (c *Client) check(ctx context.Context, req *headgate.Request, begins bool) (headgate.Decision, error) {
	w, _ := c.waiters.Get().(*waiter)
	defer c.putBack(w)
	if err := w.encode(req, c.traceparent(ctx), begins); err != nil {
		return unlimited(), err
	}
	w.start(c.options.Timeout)
	defer w.timer.Stop()
	for {
		l, err := c.pick(w.timer.C)
		if err != nil {
			return c.undecided(err), nil
		}
		if !l.enqueue(w) {
			continue // the link has ended, so pick does not return it again
		}
		err = l.wait(w)
		if errors.Is(err, errNotSent) {
			continue
		}
		d, failure := c.decision(w, err)
		if begins && err == nil {
			l.settle(w, &d)
		}
		return d, failure
	}
}

// traceparent returns the trace of a call, or "" for none.
func (c *Client) traceparent(ctx context.Context) string {
	if c.options.TraceParent == nil {
		return ""
	}
	return c.options.TraceParent(ctx)
}

// putBack returns a waiter to the pool, unless a large request has grown its buffer.
func (c *Client) putBack(w *waiter) {
	if cap(w.request) <= maxMessage {
		c.waiters.Put(w)
	}
}

// Attributes returns the names of the attributes that the rules of the servers use. Right after New it waits for a server, up to
// Options.Timeout, so that no rule with other attributes is missed. Until a server has reported them, it returns the built-in
// attributes.
func (c *Client) Attributes() []string {
	if names := c.attributes.Load(); names != nil {
		return *names
	}
	timeout := time.After(c.options.Timeout - time.Since(c.started))
	if c.await(timeout, func() bool { return c.attributes.Load() != nil }) != nil {
		return headgate.BuiltIn()
	}
	return *c.attributes.Load()
}

// pick returns a link to send a check on. It waits for one only while the first connection attempts are pending.
func (c *Client) pick(timeout <-chan time.Time) (*link, error) {
	for {
		if links := *c.usable.Load(); len(links) > 0 {
			return links[int(c.turn.Add(1))%len(links)], nil
		}
		if err := c.await(timeout, func() bool { return len(*c.usable.Load()) > 0 }); err != nil {
			return nil, err
		}
	}
}

// await waits until ready returns true. It fails on timeout, after Close, or if all servers have been tried without success.
func (c *Client) await(timeout <-chan time.Time, ready func() bool) error {
	for {
		c.mu.Lock()
		closed, starting, changed := c.closed, c.starting, c.changed
		c.mu.Unlock()
		switch {
		case ready():
			return nil
		case closed:
			return errClosed
		case starting == 0:
			return errNoServer
		}
		select {
		case <-changed:
		case <-timeout:
			return errNoServer
		}
	}
}

// update applies edit to the links, recomputes usable and wakes all callers of await. All changes of links go through it.
func (c *Client) update(edit func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	edit()
	var healthy, draining []*link
	for l := range c.links {
		if l.draining {
			draining = append(draining, l)
		} else {
			healthy = append(healthy, l)
		}
	}
	usable := healthy
	if len(healthy) == 0 {
		usable = draining // draining servers still respond
	}
	c.usable.Store(&usable)
	if len(healthy) > 0 {
		for _, l := range draining {
			delete(c.links, l)
			l.retire()
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// add adds a connected link.
func (c *Client) add(l *link) {
	c.update(func() {
		c.links[l] = struct{}{}
		c.settle(l.server)
	})
}

// remove removes a link that has ended.
func (c *Client) remove(l *link) { c.update(func() { delete(c.links, l) }) }

// connectFailed records that a server could not be reached.
func (c *Client) connectFailed(s *server) { c.update(func() { c.settle(s) }) }

// settle records that the first connection attempt to a server has finished. The caller holds mu.
func (c *Client) settle(s *server) {
	if !s.settled {
		s.settled = true
		c.starting--
	}
}

// setAttributes records the attributes that the rules of a server use. While servers have different rules, Attributes returns the
// union.
func (c *Client) setAttributes(s *server, names []string) {
	c.update(func() {
		c.ruleAttributes[s] = names
		all := []string{}
		for _, names := range c.ruleAttributes {
			all = append(all, names...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		c.attributes.Store(&all)
	})
}
