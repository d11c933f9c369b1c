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

// Options of a Client.
type Options struct {
	// Addresses of the servers, as host:port. Each gets one connection, and checks are spread over all that answer.
	Addresses []string
	// TLS is how to connect, with a certificate of one's own in it if the servers ask for one; nil means plain text.
	TLS *tls.Config
	// Token is sent to the servers with each call, for those with listen.tokens_file; "" means none. Without TLS it is sent in the
	// clear.
	Token string
	// Timeout is how long to wait for an answer; 0 means 100 ms. The deadline of a context counts if it is sooner.
	Timeout time.Duration
	// OnFailure decides where no server does: headgate.FailDeny denies, everything else lets pass.
	OnFailure headgate.OnStoreFailure
	// TraceParent is the trace that a call is part of, as in the header traceparent of W3C Trace Context, for the servers'
	// traces and logs; "" means none. With OpenTelemetry a propagator writes it. nil means that servers are not told.
	TraceParent func(ctx context.Context) string
	// Log is told when a server goes away and when it is back; nil means slog.Default().
	Log *slog.Logger
}

// Client asks servers. It is safe for use by many goroutines, which share its connections: make one and keep it.
type Client struct {
	options Options
	started time.Time
	stop    context.CancelFunc
	running sync.WaitGroup

	waiters sync.Pool
	turn    atomic.Uint32
	// usable are the links that checks go to. It is never nil.
	usable atomic.Pointer[[]*link]
	// attributes is nil until a server has said what its rules look at.
	attributes atomic.Pointer[[]string]

	mu       sync.Mutex
	links    map[*link]struct{} // those that are up and not retired
	known    map[*server][]string
	starting int           // servers that have been neither reached nor missed yet
	changed  chan struct{} // closed when anything of this changes
	closed   bool
}

// New makes a client. It does not wait for servers: the first checks do, within their deadline. Close it when it is no
// longer needed.
func New(o Options) (*Client, error) {
	if len(o.Addresses) == 0 {
		return nil, errors.New("client: there are no addresses: name at least one server, as host:port")
	}
	for _, address := range o.Addresses {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return nil, fmt.Errorf("client: address %q is not host:port, such as headgate-1:8081", address)
		}
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("client: a timeout of %v is negative: leave it out for %v", o.Timeout, defaultTimeout)
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
		links: map[*link]struct{}{}, known: map[*server][]string{}, starting: len(o.Addresses), changed: make(chan struct{}),
	}
	c.waiters.New = func() any { return newWaiter() }
	c.usable.Store(&[]*link{})
	for _, address := range o.Addresses {
		s := &server{client: c, address: address}
		c.running.Go(func() { s.run(ctx) })
	}
	return c, nil
}

// Close ends all connections and waits until they are. Checks under way, and those to come, are decided by OnFailure.
func (c *Client) Close() {
	c.change(func() { c.closed = true })
	c.stop()
	c.running.Wait()
}

// Check decides a request and charges it, as headgate.Limiter.Check does. The error is nil unless the request itself is
// wrong: it names a rule that there is not, or is larger than the servers take. A request is charged also if ctx has ended: the
// wait for an answer ends with Options.Timeout.
func (c *Client) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	w, _ := c.waiters.Get().(*waiter)
	defer c.putBack(w)
	if err := w.encode(&req, c.traceparent(ctx)); err != nil {
		return unlimited(), err
	}
	w.begin(c.options.Timeout)
	defer w.timer.Stop()
	for {
		l, err := c.pick(w.timer.C)
		if err != nil {
			return c.undecided(err), nil
		}
		if !l.ask(w) {
			continue // it is gone, and so is the reason to pick it
		}
		if err := l.await(w); !errors.Is(err, errNotSent) {
			return c.decision(w, err)
		}
	}
}

// traceparent is what to tell servers of the caller's trace.
func (c *Client) traceparent(ctx context.Context) string {
	if c.options.TraceParent == nil {
		return ""
	}
	return c.options.TraceParent(ctx)
}

// putBack does not keep what a few large requests have grown.
func (c *Client) putBack(w *waiter) {
	if cap(w.request) <= mostBytes {
		c.waiters.Put(w)
	}
}

// Attributes are the names of those that the rules of the servers look at. Until a server has said so they are the
// built-in ones; right after New this waits for a server, up to Options.Timeout, so that no rule is missed that looks
// at others.
func (c *Client) Attributes() []string {
	if names := c.attributes.Load(); names != nil {
		return *names
	}
	patience := time.After(c.options.Timeout - time.Since(c.started))
	if c.await(patience, func() bool { return c.attributes.Load() != nil }) != nil {
		return headgate.BuiltIn()
	}
	return *c.attributes.Load()
}

// pick returns a link to ask. It waits for one only if it is not known yet whether there is any.
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

// await waits until a change makes ready true. It fails if the time is up, or no server is yet to be reached or missed.
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

// change is how links come, turn and go.
func (c *Client) change(edit func()) {
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
		usable = draining // they answer until they are gone
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

func (c *Client) add(l *link) {
	c.change(func() {
		c.links[l] = struct{}{}
		c.settle(l.server)
	})
}

func (c *Client) remove(l *link) { c.change(func() { delete(c.links, l) }) }

// miss is told of a server that cannot be reached.
func (c *Client) miss(s *server) { c.change(func() { c.settle(s) }) }

// settle is called once it is known whether a server is there.
func (c *Client) settle(s *server) {
	if !s.settled {
		s.settled = true
		c.starting--
	}
}

// learn is told what the rules of a server look at. While servers have different rules, all names are of interest.
func (c *Client) learn(s *server, names []string) {
	c.change(func() {
		c.known[s] = names
		all := []string{}
		for _, names := range c.known {
			all = append(all, names...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		c.attributes.Store(&all)
	})
}
