package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/redisstore"
)

// storeDeadline is how long a decision waits for Redis. It is below what callers wait for us: Envoy's default is 20 ms.
const storeDeadline = 10 * time.Millisecond

// storeGrace is for the store to say itself what became of the charges, which it knows best.
const storeGrace = 3 * time.Millisecond

// deadlineStore is a store that nobody waits for longer than that. To end its context is not enough: a client that finds
// itself with a new connection to a server that hangs takes its time to close it again.
type deadlineStore struct{ headgate.Store }

func (s deadlineStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	ctx, cancel := context.WithTimeout(ctx, storeDeadline)
	defer cancel()
	// Of their own, since the caller's are no longer ours once it has gone on.
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
			for i := range results {
				results[i] = headgate.Result{Err: errLate}
			}
			return errLate
		}
	}
	copy(results, said)
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
