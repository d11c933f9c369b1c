package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/testenv"
)

// leaf returns a certificate for a client or a server on this machine.
func leaf(t *testing.T, by *testenv.Certificate, name string, until time.Time) *testenv.Certificate {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "gateway.example"}, NotAfter: until}
	if u, err := url.Parse(name); err == nil && u.Scheme != "" {
		template.URIs = []*url.URL{u}
	} else {
		template.DNSNames = []string{name}
	}
	return testenv.NewCertificate(t, by, template)
}

func newAuthority(t *testing.T) *testenv.Certificate {
	t.Helper()
	return testenv.NewCertificate(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}})
}

// securedServer is a server whose listeners are tried, with all tokens and certificates.
type securedServer struct {
	*testenv.Program
	http, grpc, ops, admin string
	secure                 bool
	tokens                 map[string]string
	certificates           map[string]*testenv.Certificate
	servers                *x509.CertPool
}

const permissiveRules = "rules:\n  - {id: all, by: [], limit: 1000000/hour}\n"

// newSecuredServer starts a server whose callers need the given authentication: tokens, certificates, names.
func newSecuredServer(t *testing.T, auth ...string) *securedServer {
	t.Helper()
	h := &securedServer{
		http: testenv.FreeAddress(t), grpc: testenv.FreeAddress(t), ops: testenv.FreeAddress(t), admin: testenv.FreeAddress(t),
		tokens: map[string]string{"none": "", "no token": "hgt_x"}, certificates: map[string]*testenv.Certificate{},
	}
	ours, theirs := newAuthority(t), newAuthority(t)
	h.servers = ours.Pool
	server, noExpiry := leaf(t, ours, "server.example", time.Time{}), time.Time{}
	h.certificates = map[string]*testenv.Certificate{
		"none": nil, "gateway": leaf(t, ours, "gateway.example", noExpiry), "by URI": leaf(t, ours, "spiffe://example/gateway", noExpiry),
		"other name": leaf(t, ours, "intruder.example", noExpiry), "expired": leaf(t, ours, "gateway.example", time.Now().Add(-time.Minute)),
		"of others": leaf(t, theirs, "gateway.example", noExpiry),
	}
	var lines []string // of one file for all: their roles distinguish them
	for _, name := range []string{"caller", "self", "viewer", "editor", "admin", "unlisted"} {
		rights := []string{name}
		if name == "unlisted" {
			rights = []string{"caller"}
		}
		token, line, err := adminapi.NewToken(name, rights...)
		if err != nil {
			t.Fatal(err)
		}
		h.tokens[name] = token
		if name != "unlisted" {
			lines = append(lines, line)
		}
	}
	dir := t.TempDir()
	config := fmt.Sprintf("rules: rules.yaml\nredis: {address: \"redis://%s\"}\nadmin: {tokens_file: tokens}\nlisten:\n"+
		"  http: %s\n  grpc: %s\n  ops: %s\n  admin: %s\n", startRedis(t).Addr(), h.http, h.grpc, h.ops, h.admin)
	for _, method := range auth {
		switch method {
		case "tokens":
			config += "  tokens_file: tokens\n"
		case "certificates", "names":
			h.secure = true
			config += "  tls:\n    cert_file: cert\n    key_file: key\n    client_ca_file: ca\n"
			if method == "names" {
				config += "    client_names: [gateway.example, \"spiffe://example/gateway\"]\n"
			}
		}
	}
	for name, text := range map[string]string{
		"config.yaml": config, "rules.yaml": permissiveRules, "tokens": strings.Join(lines, "\n"),
		"cert": server.CertPEM, "key": server.KeyPEM, "ca": ours.CertPEM,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Program = testenv.Run(t, exec.Command(headgateProgram(t), "serve", "--config", filepath.Join(dir, "config.yaml")), h.ops)
	return h
}

// tls returns the TLS config of a caller with a certificate; nil without TLS.
func (h *securedServer) tls(certificate string) *tls.Config {
	if !h.secure {
		return nil
	}
	c := &tls.Config{RootCAs: h.servers}
	if own := h.certificates[certificate]; own != nil {
		c.Certificates = []tls.Certificate{own.Certificate}
	}
	return c
}

// expectStarts checks whether a server starts with a config, and if not, that its error names the listener. The short form only
// validates the config.
func expectStarts(t *testing.T, config, key string, want bool) {
	t.Helper()
	var output bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	args := []string{"config", "validate", config}
	if long() {
		args = []string{"serve", "--config", config}
	}
	command := exec.CommandContext(ctx, headgateProgram(t), args...)
	if long() {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		command.Stdout, command.Stderr = &output, writer
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		up := awaitUp(reader, &output)
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Process.Kill()
		_ = command.Wait()
		if up != want || !want && !strings.Contains(output.String(), key) {
			t.Errorf("%s: up %v, want %v:\n%s", key, up, want, output.String())
		}
		return
	}
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	if valid := err == nil; valid != want || !want && !strings.Contains(output.String(), key) {
		t.Errorf("%s: valid %v, want %v:\n%s", key, valid, want, output.String())
	}
}

// awaitUp reads a log until the last listener is up, which it reports, or the log ends.
func awaitUp(log io.Reader, all *bytes.Buffer) bool {
	for buffer := make([]byte, 4096); ; {
		n, err := log.Read(buffer)
		all.Write(buffer[:n])
		if strings.Contains(all.String(), `"listener":"ops"`) {
			return true
		}
		if err != nil {
			return false
		}
	}
}
