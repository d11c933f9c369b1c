package listen

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// pair is a self-signed certificate for servers and clients.
type pair struct{ *testenv.Certificate }

func newPair(t *testing.T, name string) pair {
	t.Helper()
	return pair{testenv.NewCertificate(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}})}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	testenv.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func filesIn(dir string) Files {
	return Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), ClientCA: filepath.Join(dir, "ca"), Section: "x.tls"}
}

func (p pair) write(t *testing.T, f Files) {
	t.Helper()
	write(t, f.Cert, p.CertPEM)
	write(t, f.Key, p.KeyPEM)
}

// handshake performs a TLS handshake and returns the name of the server, or the error of either side.
func handshake(c *Certificates, client *tls.Config) (name string, err error) {
	return handshakeWith(c, client, func(net.Addr, error) {})
}

// handshakeWith also calls rejected for clients whose certificate the server rejects.
func handshakeWith(c *Certificates, client *tls.Config, rejected func(net.Addr, error)) (name string, err error) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	served := make(chan error, 1)
	go func() {
		conn := tls.Server(ours, c.Config(rejected))
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte("x")) // with TLS 1.3 the client learns only from data that it was accepted
		}
		served <- err
	}()
	conn := tls.Client(theirs, client)
	if err = conn.Handshake(); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		theirs.Close()
		<-served
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, <-served
}

func TestReload(t *testing.T) {
	t.Parallel()
	files := filesIn(t.TempDir())
	files.ClientCA = ""
	one, two := newPair(t, "one"), newPair(t, "two")
	one.write(t, files)
	synctest.Test(t, func(t *testing.T) {
		var log testenv.Log
		c, err := Load(files, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		go c.Watch(t.Context())
		client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}} //nolint:gosec // G402: it only reads the name
		expect := func(name string, lines int) {
			t.Helper()
			time.Sleep(3 * reloadInterval)
			synctest.Wait()
			if got, err := handshake(c, client); got != name {
				t.Errorf("the certificate of %s is in use, want %s: %v", got, name, err)
			}
			if n := strings.Count(log.String(), "\n"); n != lines {
				t.Errorf("%d log lines, want %d:\n%s", n, lines, log.String())
			}
		}
		expect("one", 0)
		if first, authorities := c.Current(); first.Leaf.Subject.CommonName != "one" || authorities != nil {
			t.Errorf("the current certificate is that of %s, with %v", first.Leaf.Subject.CommonName, authorities)
		}
		two.write(t, files)
		expect("two", 1)
		write(t, files.Cert, "nonsense")
		expect("two", 2) // logged once
		expect("two", 2)
		write(t, files.Cert, two.CertPEM)
		expect("two", 2)
		write(t, files.Cert, "nonsense")
		expect("two", 3)
		if err := os.Remove(files.Key); err != nil {
			t.Fatal(err)
		}
		expect("two", 4)
		one.write(t, files)
		expect("one", 5)
		if !strings.Contains(log.String(), "x.tls: ") {
			t.Errorf("the section of the config is not in the log:\n%s", log.String())
		}
	})
}

// TestReloadHalfWritten checks that a certificate whose key is not yet written is not logged as an error.
func TestReloadHalfWritten(t *testing.T) {
	t.Parallel()
	files := filesIn(t.TempDir())
	files.ClientCA = ""
	one, two := newPair(t, "one"), newPair(t, "two")
	one.write(t, files)
	var log testenv.Log
	synctest.Test(t, func(t *testing.T) {
		c, err := Load(files, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		go c.Watch(t.Context())
		write(t, files.Cert, two.CertPEM)
		time.Sleep(reloadInterval + time.Millisecond)
		synctest.Wait()
		write(t, files.Key, two.KeyPEM)
		time.Sleep(3 * reloadInterval)
	})
	if strings.Contains(log.String(), "rejected") || !strings.Contains(log.String(), "applied") {
		t.Error(log.String())
	}
}

// TestClientCertificates checks that clients need a certificate of a current authority, even if they resume a session.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	files := filesIn(t.TempDir())
	server, trusted, untrusted := newPair(t, "server"), newPair(t, "trusted"), newPair(t, "untrusted")
	server.write(t, files)
	write(t, files.ClientCA, trusted.CertPEM)
	synctest.Test(t, func(t *testing.T) {
		c, err := Load(files, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		go c.Watch(t.Context())
		sessions := map[string]tls.ClientSessionCache{}
		config := func(p pair) *tls.Config {
			if sessions[p.CertPEM] == nil {
				sessions[p.CertPEM] = tls.NewLRUClientSessionCache(8)
			}
			return &tls.Config{
				RootCAs: server.Pool, ServerName: "server", Certificates: []tls.Certificate{p.Certificate.Certificate},
				ClientSessionCache: sessions[p.CertPEM],
			}
		}
		rejected := 0
		count := func(net.Addr, error) { rejected++ }
		if _, err := handshakeWith(c, config(trusted), count); err != nil || rejected != 0 {
			t.Error(err, rejected)
		}
		if _, err := handshakeWith(c, config(untrusted), count); err == nil || rejected != 1 {
			t.Errorf("an untrusted client was accepted, or not reported: %d rejections", rejected)
		}
		if _, err := handshakeWith(c, &tls.Config{RootCAs: server.Pool, ServerName: "server"}, count); err == nil || rejected != 2 {
			t.Errorf("a client without a certificate was accepted, or not reported: %d rejections", rejected)
		}
		if _, err := handshake(c, config(trusted)); err != nil {
			t.Error(err)
		}
		write(t, files.ClientCA, untrusted.CertPEM)
		time.Sleep(3 * reloadInterval)
		synctest.Wait()
		if _, err := handshake(c, config(untrusted)); err != nil {
			t.Error(err)
		}
		if _, err := handshake(c, config(trusted)); err == nil {
			t.Error("a client that is no longer trusted was accepted")
		}
	})
}

func TestOldTLS(t *testing.T) {
	t.Parallel()
	files := filesIn(t.TempDir())
	files.ClientCA = ""
	newPair(t, "one").write(t, files)
	c, err := Load(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	//nolint:gosec // G402: the subject of the test
	old := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if _, err := handshake(c, old); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

func TestLoadFails(t *testing.T) {
	t.Parallel()
	good, other := newPair(t, "good"), newPair(t, "other")
	for name, spoil := range map[string]func(Files){
		"no such file":       func(f Files) { _ = os.Remove(f.Key) },
		"do not match":       func(f Files) { write(t, f.Key, other.KeyPEM) },
		"no certificate in ": func(f Files) { write(t, f.ClientCA, "nonsense") },
	} {
		files := filesIn(t.TempDir())
		good.write(t, files)
		write(t, files.ClientCA, good.CertPEM)
		spoil(files)
		if _, err := Load(files, slog.Default()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
