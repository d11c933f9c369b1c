package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Certificate is a certificate with its key.
type Certificate struct {
	tls.Certificate
	// CertPEM and KeyPEM are the contents of files.
	CertPEM, KeyPEM string
	// Pool trusts this certificate and those signed by it.
	Pool *x509.CertPool
}

// NewCertificate returns a certificate for servers on this machine and for clients. It is signed by the certificate by, or
// self-signed if by is nil. The template has its names, and may have further addresses and an
// expiry; the default is in 100 years.
func NewCertificate(t testing.TB, by *Certificate, template *x509.Certificate) *Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.IPAddresses = append(template.IPAddresses, net.IPv4(127, 0, 0, 1))
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.NotBefore = time.Unix(0, 0) // tests may use their own clock
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(100 * 365 * 24 * time.Hour)
	}
	parent, parentKey := template, any(key)
	if by != nil {
		parent, parentKey = by.Leaf, by.PrivateKey
	} else {
		template.IsCA, template.BasicConstraintsValid = true, true
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	NoError(t, err)
	c := &Certificate{
		CertPEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		KeyPEM:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		Pool:    x509.NewCertPool(),
	}
	c.Certificate, err = tls.X509KeyPair([]byte(c.CertPEM), []byte(c.KeyPEM))
	NoError(t, err)
	c.Pool.AddCert(c.Leaf)
	return c
}
