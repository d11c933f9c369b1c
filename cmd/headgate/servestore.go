package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/redisstore"
)

// storeDeadline is how long a decision waits for Redis. It is below what callers wait for us: Envoy's default is 20 ms.
const storeDeadline = 10 * time.Millisecond

// storeGrace is for the store to say itself what became of the charges, which it knows best.
const storeGrace = 3 * time.Millisecond

// deadlineStore is a store that nobody waits for longer than that. While it answers, its context is enough. After it has
// failed, it is asked in a goroutine until it answers again: a client that finds itself with a new connection to a server
// that hangs takes its time to close it, whatever the context says.
type deadlineStore struct {
	headgate.Store
	failing  atomic.Bool
	deadline atomic.Pointer[deadline]
}

// deadline is a context for all calls that begin within a millisecond: one for each would cost as much as a rule.
type deadline struct {
	context.Context
	at    time.Time
	until time.Time // when it is too late to use it
	done  chan struct{}
}

const deadlineStep = time.Millisecond

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }
func (d *deadline) Done() <-chan struct{}       { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Take does not end with ctx, but by its own deadline: a caller that is gone is no reason for one of its own.
//
//nolint:contextcheck // as it says
func (s *deadlineStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if err := ctx.Err(); err != nil {
		return s.tell(results, fmt.Errorf("%w: %w", headgate.ErrUnavailable, err))
	}
	if s.failing.Load() {
		return s.takeAside(charges, results)
	}
	err := s.Store.Take(s.soon(), charges, results)
	if err != nil {
		s.failing.Store(true)
	}
	return err
}

// soon ends after storeDeadline, or up to deadlineStep later.
func (s *deadlineStore) soon() context.Context {
	now := time.Now()
	if d := s.deadline.Load(); d != nil && now.Before(d.until) {
		return d
	}
	d := &deadline{
		Context: context.Background(), done: make(chan struct{}),
		at: now.Add(storeDeadline + deadlineStep), until: now.Add(deadlineStep),
	}
	time.AfterFunc(storeDeadline+deadlineStep, func() { close(d.done) })
	s.deadline.Store(d)
	return d
}

// takeAside asks with charges and results of its own, since the caller's are no longer ours once it has gone on.
func (s *deadlineStore) takeAside(charges []headgate.Charge, results []headgate.Result) error {
	ctx := s.soon()
	asked, said := slices.Clone(charges), make([]headgate.Result, len(results))
	answered := make(chan error, 1)
	go func() { answered <- s.Store.Take(ctx, asked, said) }()
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		select {
		case err = <-answered:
		case <-time.After(storeGrace):
			return s.tell(results, errLate)
		}
	}
	if err == nil {
		s.failing.Store(false)
	}
	copy(results, said)
	return err
}

func (s *deadlineStore) tell(results []headgate.Result, err error) error {
	for i := range results {
		results[i] = headgate.Result{Err: err}
	}
	return err
}

// errLate is for charges of which nobody knows what became of them.
var errLate = fmt.Errorf("%w: %w: it is late", headgate.ErrUnavailable, headgate.ErrUnanswered)

// redisOptions are the config's, with the secrets in its files.
func redisOptions(c *config.Redis) (redisstore.Options, error) {
	o := redisstore.Options{Address: c.Address, Namespace: c.Namespace, Username: c.Username}
	password, err := readSecret(c.PasswordFile)
	if err != nil {
		return o, fmt.Errorf("redis.password_file: %w", err)
	}
	o.Password = string(password)
	if !c.TLS.Enabled {
		return o, nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return o, fmt.Errorf("redis.tls.ca_file: %w", err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return o, fmt.Errorf("redis.tls.ca_file: there is no certificate in %s: write them in PEM", c.TLS.CAFile)
		}
	}
	if c.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
		if err != nil {
			return o, fmt.Errorf("redis.tls.cert_file and redis.tls.key_file: %w", err)
		}
		o.TLS.Certificates = []tls.Certificate{pair}
	}
	return o, nil
}
