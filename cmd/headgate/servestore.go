package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/redisstore"
)

// redisOptions are the config's, with the secrets in its files.
func redisOptions(c *config.Redis) (redisstore.Options, error) {
	o := redisstore.Options{Address: c.Address, Namespace: c.Namespace, Username: c.Username}
	password, err := config.ReadSecret(c.PasswordFile)
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

// openPostgres is the config's, with the password in its file and the quotas of tenants.
func openPostgres(c *config.Config) (*pgrules.DB, error) {
	password, err := config.ReadSecret(c.Postgres.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("postgres.password_file: %w", err)
	}
	db, err := pgrules.Open(c.Postgres.Address, string(password))
	if err != nil {
		return nil, fmt.Errorf("postgres.address: %w", err)
	}
	db.SetQuotas(c.Tenants)
	return db, nil
}
