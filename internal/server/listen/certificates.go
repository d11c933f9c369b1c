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

// reloadInterval is how often the certificate files are read. They are small and few.
const reloadInterval = time.Second

// protocols are the application protocols offered over TLS.
var protocols = []string{"h2", "http/1.1"}

// Files are the PEM files of a server's certificate and key. If ClientCA is set, clients need a certificate of one of its
// authorities.
type Files struct {
	Cert, Key, ClientCA string
	// Section is the section of the config that has the files, for errors and logs.
	Section string
}

// Certificates are the certificates in files, which are reloaded on change while Watch runs. A connection keeps those of its
// handshake.
type Certificates struct {
	files   Files
	log     *slog.Logger
	current atomic.Pointer[tls.Config]

	used, seen, rejected contents
}

// contents is the hash of the files, to detect changes.
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

// Config returns a TLS config that uses the current certificates in each handshake. rejected is called for clients without a
// valid certificate.
func (c *Certificates) Config(rejected func(remote net.Addr, err error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			current := c.current.Load()
			if current.ClientCAs == nil {
				return current, nil
			}
			// Package tls has no hook for rejected clients. So it only requests the certificate, and VerifyConnection
			// verifies it.
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

// Current returns the current certificate, and the authorities of clients, which are nil without Files.ClientCA.
func (c *Certificates) Current() (tls.Certificate, *x509.CertPool) {
	config := c.current.Load()
	return config.Certificates[0], config.ClientCAs
}

// verify checks a client's certificate, which is the first one, against the authorities.
func verify(certificates []*x509.Certificate, authorities *x509.CertPool) error {
	if len(certificates) == 0 {
		return errors.New("the client sent no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range certificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// Watch reloads the files whenever they change, until ctx ends.
func (c *Certificates) Watch(ctx context.Context) {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.reload()
		}
	}
}

// reload applies new contents when it has read them twice in a row: certificate and key are written one after the other.
// Invalid contents are logged once, and the previous certificates stay in use.
func (c *Certificates) reload() {
	config, found, err := c.read()
	switch {
	case found == c.used:
		c.rejected = contents{}
	case found != c.seen || found == c.rejected:
	case err != nil:
		c.rejected = found
		c.log.Error("certificates rejected: the previous ones stay in use until the files are corrected", "section", c.files.Section, "error", err)
	default:
		c.current.Store(config)
		c.used, c.rejected = found, contents{}
		c.log.Info("certificates applied", "section", c.files.Section, "file", c.files.Cert)
	}
	c.seen = found
}

// read returns the TLS config of the files and the hash of their contents. The error of an unreadable file is part of the hash.
func (c *Certificates) read() (config *tls.Config, found contents, err error) {
	var data [3][]byte
	var problems []error
	for i, file := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if file == "" {
			continue
		}
		var problem error
		if data[i], problem = os.ReadFile(file); problem != nil { //nolint:gosec // G304: the operator configures the paths
			problems = append(problems, problem)
			data[i] = []byte(problem.Error())
		}
	}
	found = sha256.Sum256(bytes.Join(data[:], []byte{0}))
	if len(problems) > 0 {
		return nil, found, fmt.Errorf("%s: %w", c.files.Section, errors.Join(problems...))
	}
	pair, err := tls.X509KeyPair(data[0], data[1])
	if err != nil {
		return nil, found, fmt.Errorf("%s: %s and %s do not match: %w", c.files.Section, c.files.Cert, c.files.Key, err)
	}
	config = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   protocols,
		Certificates: []tls.Certificate{pair},
	}
	if c.files.ClientCA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(data[2]) {
			return nil, found, fmt.Errorf("%s: no certificate in %s: must be PEM", c.files.Section, c.files.ClientCA)
		}
	}
	return config, found, nil
}
