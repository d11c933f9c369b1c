package doctor

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// protocolTimeout bounds each attempt to recognise a protocol.
const protocolTimeout = time.Second

// protocolRemedy returns what to do if a server answers, but with or without TLS other than the config says. It returns "" if that is not
// the reason. The errors of the client do not show it: the server closes the connection, or waits.
func (c *redisCheck) protocolRemedy(ctx context.Context, address string) string {
	if address == "" {
		return ""
	}
	encrypted, requested := speaksTLS(ctx, address)
	ours := c.option.TLSConfig
	switch {
	case encrypted && ours == nil && c.option.ForceSingleClient:
		return "the server requires TLS: redis.address: rediss://" + address + ", and redis.tls.ca_file unless the certificate is from a public authority"
	case encrypted && ours == nil:
		return "the server requires TLS: redis.tls: {enabled: true}, and redis.tls.ca_file unless the certificate is from a public authority"
	case encrypted && requested && len(ours.Certificates) == 0:
		return "the server requires a client certificate: set redis.tls.cert_file and redis.tls.key_file"
	case !encrypted && ours != nil && speaksRedis(ctx, address):
		return "the server does not use TLS: write redis:// instead of rediss:// in redis.address, and remove redis.tls; or enable TLS in Redis"
	}
	return ""
}

// speaksTLS reports whether a server has TLS, and whether it requests a certificate.
func speaksTLS(ctx context.Context, address string) (encrypted, requested bool) {
	ctx, cancel := context.WithTimeout(ctx, protocolTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			requested = true
			return &tls.Certificate{}, nil
		},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || requested, requested
}

// speaksRedis reports whether a server answers a command without TLS, be it with an error.
func speaksRedis(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: protocolTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // it was only read
	_ = conn.SetDeadline(time.Now().Add(protocolTimeout))
	reply := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	n, _ := conn.Read(reply)
	return n == 1 && (reply[0] == '+' || reply[0] == '-')
}
