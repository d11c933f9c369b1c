package doctor

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testenv"
)

// regionsOf returns a config with two regions on free ports, and the certificates of a directory.
func regionsOf(t *testing.T, dir string) *config.Config {
	t.Helper()
	c := config.Default()
	c.Regions = config.Regions{
		Name:    "eu",
		Members: []config.RegionMember{{Name: "eu", Address: testenv.FreeAddress(t), Weight: 1}, {Name: "us", Address: testenv.FreeAddress(t), Weight: 1}},
		TLS:     config.RegionsTLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CAFile: filepath.Join(dir, "ca.pem")},
	}
	return c
}

// TestRegionFiles checks the certificate for other regions.
func TestRegionFiles(t *testing.T) {
	t.Parallel()
	if findings := CheckRegions(t.Context(), config.Default(), time.Now()); findings != nil {
		t.Errorf("without regions: %+v", findings)
	}
	dir, now := t.TempDir(), time.Now()
	c := regionsOf(t, dir)
	expect(t, CheckRegions(t.Context(), c, now), "certificate", Problem, "write a certificate and its key")
	ca, other := testenv.NewCertificate(t, nil, &x509.Certificate{}), testenv.NewCertificate(t, nil, &x509.Certificate{})
	pair := testenv.NewCertificate(t, ca, &x509.Certificate{NotAfter: now.Add(20 * 24 * time.Hour)})
	testenv.WriteFiles(t, dir, map[string]string{"cert.pem": pair.CertPEM, "key.pem": pair.KeyPEM})
	expect(t, CheckRegions(t.Context(), c, now), "certificate", Problem, "regions.tls.ca_file")
	testenv.WriteFiles(t, dir, map[string]string{"ca.pem": other.CertPEM})
	expect(t, CheckRegions(t.Context(), c, now), "certificate", Problem, "signed by the authority in "+c.Regions.TLS.CAFile)
	testenv.NoError(t, os.WriteFile(c.Regions.TLS.CAFile, []byte(ca.CertPEM), 0o600))
	expect(t, CheckRegions(t.Context(), c, now), "certificate", OK, "valid for 127.0.0.1 until ")
	expect(t, CheckRegions(t.Context(), c, now.Add(10*24*time.Hour)), "certificate", Warning, "expires in ")
	expect(t, CheckRegions(t.Context(), c, now.Add(30*24*time.Hour)), "certificate", Problem, "expired")
	c.Regions.Members[0].Address = "headgate.eu.example.com:8084"
	expect(t, CheckRegions(t.Context(), c, now), "certificate", Problem, "subject alternative name DNS:headgate.eu.example.com")
}

// TestRegionsSilent checks the remedy for regions that do not respond.
func TestRegionsSilent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := testenv.NewCertificate(t, nil, &x509.Certificate{})
	pair := testenv.NewCertificate(t, ca, &x509.Certificate{})
	testenv.WriteFiles(t, dir, map[string]string{"cert.pem": pair.CertPEM, "key.pem": pair.KeyPEM, "ca.pem": ca.CertPEM})
	c := regionsOf(t, dir)
	findings := CheckRegions(t.Context(), c, time.Now())
	expect(t, findings, "listener", Warning, "start the servers of eu")
	expect(t, findings, "region us", Problem, "start the servers of us, and let this host connect to their listen.regions: nc -vz 127.0.0.1 ")
}
