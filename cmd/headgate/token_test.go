package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

func TestTokenCreateRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want string }{
		{"--role editor --tenant acme", "ann editor tenant=acme"},
		{"--tenant acme", "ann tenant=acme"},
		{"--role admin", "ann admin"},
	} {
		r := startJSON[tokenReport](t, 0, append([]string{"token", "create", "ann"}, strings.Fields(c.flags)...)...)
		if !regexp.MustCompile("^[0-9a-f]{64} " + c.want + "$").MatchString(r.Line) {
			t.Errorf("%s: %s", c.flags, r.Line)
		}
	}
	for _, flag := range []string{"--role=", "--tenant=", "--tenant=a b"} { // an unset shell variable must not create a token for all tenants
		o := start(t, "token", "create", "ann", flag, "--server", "http://127.0.0.1:1")
		if local := start(t, "token", "create", "ann", flag); local != o {
			t.Errorf("%s: %+v", flag, local)
		}
		if o.code != 2 || !strings.Contains(o.errors, "after the name write a role") {
			t.Errorf("%s: %+v", flag, o)
		}
	}
}

// sign returns a JWT signed with a new key, and writes the public key to keyFile.
func sign(t *testing.T, keyFile, claims string) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"EdDSA"}`)) + "." + encode([]byte(claims))
	return text + "." + encode(ed25519.Sign(private, []byte(text)))
}

// TestServeTokens checks that all listeners that require a token accept tokens of the file and JWTs of an issuer.
func TestServeTokens(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	dir, file := configure(t, "redis: {address: redis://"+redis.Addr()+"}\nadmin: {tokens_file: tokens, "+
		"jwt: {algorithms: EdDSA, key_file: key, issuer: me, audience: headgate, claims: {tenant: org}}}\n", fivePerHour)
	viewer := startJSON[tokenReport](t, 0, "token", "create", "ann")
	ofTenant := startJSON[tokenReport](t, 0, "token", "create", "eve", "--role", "admin", "--tenant", "acme")
	writeFile(t, filepath.Join(dir, "tokens"), viewer.Line+"\n"+ofTenant.Line+"\n")
	signed := sign(t, filepath.Join(dir, "key"), fmt.Sprintf(
		`{"iss":"me","aud":"headgate","sub":"bob","role":"editor","org":"*","exp":%d}`, time.Now().Add(time.Hour).Unix()))
	r := serve(t, "--config", file)
	r.waitForLog(redisConnected)
	post := func(listener, path, token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addressOf(listener)+path,
			strings.NewReader(`{"attributes": {"ip": "192.0.2.1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	conn, err := grpc.NewClient(r.addressOf("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, c := range map[string]struct {
		token           string
		explain, refund int
		code            codes.Code
	}{
		"no token":    {"", http.StatusUnauthorized, http.StatusForbidden, codes.PermissionDenied},
		"made up":     {"hgt_x", http.StatusUnauthorized, http.StatusForbidden, codes.PermissionDenied},
		"a viewer":    {viewer.Token, http.StatusOK, http.StatusForbidden, codes.PermissionDenied},
		"of a tenant": {ofTenant.Token, http.StatusForbidden, http.StatusForbidden, codes.PermissionDenied},
		"an editor":   {signed, http.StatusOK, http.StatusOK, codes.OK},
	} {
		// Redis may respond late on a busy machine.
		eventually(t, name+" explains", func() bool { return post("admin", "/v1/explain", c.token) == c.explain })
		eventually(t, name+" refunds", func() bool { return post("http", "/v1/refund", c.token) == c.refund })
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+c.token)
		if _, err := checkv1.NewCheckServiceClient(conn).Refund(ctx, &checkv1.CheckRequest{}); status.Code(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, token := range []string{viewer.Token, ofTenant.Token, signed} {
		if strings.Contains(r.log.String(), token) {
			t.Error("the log contains a token")
		}
	}
}
