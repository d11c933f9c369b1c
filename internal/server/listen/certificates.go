package listen

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// lookEvery is how often the files of certificates are read. They are small and few.
const lookEvery = time.Second

// protocols are offered over TLS.
var protocols = []string{"h2", "http/1.1"}

// Files are what a server proves itself with, in PEM; ClientCA, if given, is who signs the certificates that clients then
// need.
type Files struct{ Cert, Key, ClientCA string }

// Certificates are those of files, read again when they change while Watch runs. A connection has those of its beginning.
type Certificates struct {
	files   Files
	log     *slog.Logger
	current atomic.Pointer[tls.Config]

	used, seen, denied contents
}

// contents tells files apart from what was in them before.
type contents [sha256.Size]byte

// Load reads the files.
func Load(files Files, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: files, log: log}
	config, found, err := c.read()
	if err != nil {
		return nil, err
	}
	c.current.Store(config)
	c.used, c.seen = found, found
	return c, nil
}

// Config has whatever certificates are in use when a client says hello. rejected is called for clients whose own certificate is
// missing or wrong.
func (c *Certificates) Config(rejected func(remote net.Addr, err error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			current := c.current.Load()
			if current.ClientCAs == nil {
				return current, nil
			}
			// Package tls does not tell of clients that it rejects, so that it is told to ask for a certificate and no more.
			current = current.Clone()
			current.ClientAuth = tls.RequestClientCert
			current.VerifyConnection = func(state tls.ConnectionState) error {
				err := verify(state.PeerCertificates, current.ClientCAs)
				if err != nil {
					rejected(hello.Conn.RemoteAddr(), err)
				}
				return err
			}
			return current, nil
		},
	}
}

// verify is nil for a client's certificates, its own first, that lead to one of the authorities.
func verify(certificates []*x509.Certificate, authorities *x509.CertPool) error {
	if len(certificates) == 0 {
		return errors.New("the client sent no certificate")
	}
	others := x509.NewCertPool()
	for _, c := range certificates[1:] {
		others.AddCert(c)
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// Watch reads the files again whenever they change, until ctx ends.
func (c *Certificates) Watch(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.look()
		}
	}
}

// look takes new contents into use when it has seen them twice: certificate and key are written one after the other. Bad
// ones are told of once, and what was in use stays.
func (c *Certificates) look() {
	config, found, err := c.read()
	switch {
	case found == c.used:
		c.denied = contents{}
	case found != c.seen || found == c.denied:
	case err != nil:
		c.denied = found
		c.log.Error("certificates denied: those before stay in use until the files are corrected", "error", err)
	default:
		c.current.Store(config)
		c.used, c.denied = found, contents{}
		c.log.Info("certificates applied", "file", c.files.Cert)
	}
	c.seen = found
}

// read makes a config of the files. That one cannot be read is part of what is found.
func (c *Certificates) read() (config *tls.Config, found contents, err error) {
	var data [3][]byte
	var problems []error
	for i, file := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if file == "" {
			continue
		}
		var problem error
		if data[i], problem = os.ReadFile(file); problem != nil { //nolint:gosec // G304: the config says where they are
			problems = append(problems, problem)
			data[i] = []byte(problem.Error())
		}
	}
	found = sha256.Sum256(bytes.Join(data[:], []byte{0}))
	if len(problems) > 0 {
		return nil, found, fmt.Errorf("listen.tls: %w", errors.Join(problems...))
	}
	pair, err := tls.X509KeyPair(data[0], data[1])
	if err != nil {
		return nil, found, fmt.Errorf("listen.tls: %s and %s do not go together: %w", c.files.Cert, c.files.Key, err)
	}
	config = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   protocols,
		Certificates: []tls.Certificate{pair},
	}
	if c.files.ClientCA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(data[2]) {
			return nil, found, fmt.Errorf("listen.tls: there is no certificate in %s: write them in PEM", c.files.ClientCA)
		}
	}
	return config, found, nil
}
