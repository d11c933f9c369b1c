package attack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
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

// authority signs certificates, and its own.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.certificate, a.key = sign(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign makes a certificate, signed by the authority or, without one, by itself.
func sign(t *testing.T, by *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, parentKey := template, key
	if by != nil {
		parent, parentKey = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// leaf is a certificate for a client or a server of this machine.
func (a *authority) leaf(t *testing.T, name string, until time.Time) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "gateway.example"}, NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if u, err := url.Parse(name); err == nil && u.Scheme != "" {
		template.URIs = []*url.URL{u}
	} else {
		template.DNSNames = []string{name}
	}
	certificate, key := sign(t, a, template)
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}
}

func inPEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func keyInPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return inPEM(t, "PRIVATE KEY", der)
}

// house is a server whose doors are tried, and the keys that there are.
type house struct {
	*testenv.Program
	http, grpc, ops, admin string
	secure                 bool
	tokens                 map[string]string
	certificates           map[string]*tls.Certificate
	servers                *x509.CertPool
}

const doorRules = "rules:\n  - {id: all, by: [], limit: 1000000/hour}\n"

// newHouse starts a server whose callers need what locks says: tokens, certificates, names.
func newHouse(t *testing.T, locks ...string) *house {
	t.Helper()
	h := &house{
		http: testenv.FreeAddress(t), grpc: testenv.FreeAddress(t), ops: testenv.FreeAddress(t), admin: testenv.FreeAddress(t),
		tokens: map[string]string{"none": "", "no token": "hgt_x"}, certificates: map[string]*tls.Certificate{}, servers: x509.NewCertPool(),
	}
	ours, theirs := newAuthority(t), newAuthority(t)
	h.servers.AddCert(ours.certificate)
	server, never := ours.leaf(t, "server.example", time.Time{}), time.Time{}
	h.certificates = map[string]*tls.Certificate{
		"none": nil, "gateway": ours.leaf(t, "gateway.example", never), "by URI": ours.leaf(t, "spiffe://example/gateway", never),
		"other name": ours.leaf(t, "intruder.example", never), "expired": ours.leaf(t, "gateway.example", time.Now().Add(-time.Minute)),
		"of others": theirs.leaf(t, "gateway.example", never),
	}
	var lines []string // of one file for all: the roles keep them apart
	for _, name := range []string{"caller", "self", "viewer", "editor", "admin", "stranger"} {
		rights := []string{name}
		if name == "stranger" {
			rights = []string{"caller"}
		}
		token, line, err := adminapi.NewToken(name, rights...)
		if err != nil {
			t.Fatal(err)
		}
		h.tokens[name] = token
		if name != "stranger" {
			lines = append(lines, line)
		}
	}
	dir := t.TempDir()
	config := fmt.Sprintf("rules: rules.yaml\nredis: {address: \"redis://%s\"}\nadmin: {tokens_file: tokens}\nlisten:\n"+
		"  http: %s\n  grpc: %s\n  ops: %s\n  admin: %s\n", startRedis(t).Addr(), h.http, h.grpc, h.ops, h.admin)
	for _, lock := range locks {
		switch lock {
		case "tokens":
			config += "  tokens_file: tokens\n"
		case "certificates", "names":
			h.secure = true
			config += "  tls:\n    cert_file: cert\n    key_file: key\n    client_ca_file: ca\n"
			if lock == "names" {
				config += "    client_names: [gateway.example, \"spiffe://example/gateway\"]\n"
			}
		}
	}
	for name, text := range map[string]string{
		"config.yaml": config, "rules.yaml": doorRules, "tokens": strings.Join(lines, "\n"),
		"cert": inPEM(t, "CERTIFICATE", server.Certificate[0]), "key": keyInPEM(t, server.PrivateKey),
		"ca": inPEM(t, "CERTIFICATE", ours.certificate.Raw),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Program = testenv.Run(t, exec.Command(headgateProgram(t), "serve", "--config", filepath.Join(dir, "config.yaml")), h.ops)
	return h
}

// tls is how a caller with a certificate connects; nil without TLS.
func (h *house) tls(certificate string) *tls.Config {
	if !h.secure {
		return nil
	}
	c := &tls.Config{RootCAs: h.servers}
	if own := h.certificates[certificate]; own != nil {
		c.Certificates = []tls.Certificate{*own}
	}
	return c
}

// opens sees whether a server starts with a config, and if not, that it says which listener is to blame. The short form asks for what
// the server would say.
func opens(t *testing.T, config, key string, want bool) {
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
		if up != want || !want && !strings.Contains(output.String(), key+" is open beyond this machine") {
			t.Errorf("%s: up %v, not %v:\n%s", key, up, want, output.String())
		}
		return
	}
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	if valid := err == nil; valid != want || !want && !strings.Contains(output.String(), key+" is open beyond this machine") {
		t.Errorf("%s: valid %v, not %v:\n%s", key, valid, want, output.String())
	}
}

// awaitUp reads a log until it says that the last listener is up, or ends.
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
