package adminapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/server/adminapi"
)

// issuer signs tokens with a key of its own.
type issuer struct {
	key    ed25519.PrivateKey
	public []byte // in PEM
}

func newIssuer(t testing.TB) issuer {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}
}

// claims returns the claims of an editor of acme, with some of them replaced. nil removes a claim.
func claims(changed jwt.MapClaims) jwt.MapClaims {
	all := jwt.MapClaims{
		"iss": "https://id.example", "aud": "headgate", "exp": time.Now().Add(time.Hour).Unix(), "sub": "ann",
		"role": "editor", "org": jwt.MapClaims{"id": "acme"},
	}
	maps.Copy(all, changed)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return all
}

func (i issuer) sign(t testing.TB, changed jwt.MapClaims) string {
	t.Helper()
	return signed(t, jwt.SigningMethodEdDSA, i.key, changed)
}

func signed(t testing.TB, method jwt.SigningMethod, key any, changed jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims(changed)).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// authority returns an authority that trusts the issuer.
func (i issuer) authority(t testing.TB) adminapi.JWT {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.pem")
	writeFile(t, file, string(i.public))
	tokens, err := identity.NewTokens(identity.JWT{
		Algorithms: []string{"EdDSA"}, KeyFile: file, Issuer: "https://id.example", Audience: []string{"headgate"},
	}, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	return adminapi.JWT{Tokens: tokens, Role: "role", Tenant: "org.id", Name: "sub"}
}

const invalidToken = "invalid token: "

func TestJWT(t *testing.T) {
	t.Parallel()
	ours := newIssuer(t)
	authority := ours.authority(t)
	past, later := time.Now().Add(-time.Second).Unix(), time.Now().Add(time.Hour).Unix()
	org := func(id any) jwt.MapClaims { return jwt.MapClaims{"org": jwt.MapClaims{"id": id}} }
	foreign := jwt.MapClaims{"iss": "https://other.example"}
	const (
		notOurs  = invalidToken + "not signed by a known key"
		noName   = invalidToken + "claim sub: must be the caller's name"
		noRole   = invalidToken + "claim role: must be self, viewer, editor or admin"
		noTenant = invalidToken + `claim org.id: must be the caller's tenant, or "*" for all`
	)
	for name, c := range map[string]struct {
		token string
		want  adminapi.Caller
		err   string
	}{
		"good":          {token: ours.sign(t, nil), want: adminapi.Caller{Name: "ann", Role: adminapi.Editor, Tenant: "acme"}},
		"all tenants":   {token: ours.sign(t, org("*")), want: adminapi.Caller{Name: "ann", Role: adminapi.Editor}},
		"no tenant":     {token: ours.sign(t, jwt.MapClaims{"org": nil}), err: noTenant},
		"empty tenant":  {token: ours.sign(t, org(" ")), err: noTenant},
		"tenants":       {token: ours.sign(t, org([]string{"acme"})), err: noTenant},
		"no role":       {token: ours.sign(t, jwt.MapClaims{"role": nil}), err: noRole},
		"other role":    {token: ours.sign(t, jwt.MapClaims{"role": "Admin"}), err: noRole},
		"roles":         {token: ours.sign(t, jwt.MapClaims{"role": []string{"admin"}}), err: noRole},
		"no name":       {token: ours.sign(t, jwt.MapClaims{"sub": nil}), err: noName},
		"expired":       {token: ours.sign(t, jwt.MapClaims{"exp": past}), err: invalidToken + "token is expired"},
		"no expiry":     {token: ours.sign(t, jwt.MapClaims{"exp": nil}), err: invalidToken + "token is missing required claim"},
		"not yet":       {token: ours.sign(t, jwt.MapClaims{"nbf": later}), err: invalidToken + "token is not valid yet"},
		"audience":      {token: ours.sign(t, jwt.MapClaims{"aud": "api"}), err: invalidToken + "token has invalid audience"},
		"no audience":   {token: ours.sign(t, jwt.MapClaims{"aud": nil}), err: invalidToken + "token is missing required claim"},
		"issuer":        {token: ours.sign(t, foreign), err: invalidToken + "token has invalid issuer"},
		"no issuer":     {token: ours.sign(t, jwt.MapClaims{"iss": nil}), err: invalidToken + "token is missing required claim"},
		"foreign key":   {token: newIssuer(t).sign(t, nil), err: notOurs},
		"none":          {token: signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil), err: notOurs},
		"public as key": {token: signed(t, jwt.SigningMethodHS256, ours.public, nil), err: notOurs},
		"no JWT":        {token: "hgt_x", err: unknownToken},
		"dots":          {token: "..", err: notOurs},
		"too long":      {token: strings.Repeat("x", 20<<10) + "..", err: notOurs},
	} {
		got, err := authority.Caller(t.Context(), c.token)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	authority.Tenant = "" // callers are bound to no tenant
	if got, err := authority.Caller(t.Context(), ours.sign(t, nil)); err != nil || got.Tenant != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// database has one token, and fails if err is set.
type database struct {
	token string
	err   error
}

func (d *database) find(_ context.Context, sum [sha256.Size]byte) (adminapi.Caller, bool, error) {
	return adminapi.Caller{Name: "eve", Role: adminapi.Admin}, sum == sha256.Sum256([]byte(d.token)), d.err
}

// TestAuthorities checks that each authority knows its own tokens, and that the others are tried if the lookup of one fails.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, tokens := writeTokens(t, "ann", "bob")
		stored := &database{token: "stored token"}
		authorities := adminapi.Authorities{adminapi.Lookup(stored.find), readTokens(t, file, discard)}
		var log bytes.Buffer
		h := newAPI(t, authorities, textLog(&log))
		expect := func(token string, status int) {
			t.Helper()
			if w := serve(h, withToken(post(`{}`), token)); w.Code != status {
				t.Errorf("%d, not %d: %s", w.Code, status, w.Body)
			}
		}
		expect(tokens[1], http.StatusOK)
		expect(stored.token, http.StatusOK)
		stored.err = errors.New("the database is unavailable")
		expect(tokens[1], http.StatusOK)
		for range 30 { // these do not count as guesses
			expect(stored.token, http.StatusServiceUnavailable)
		}
		stored.err = nil
		expect(stored.token, http.StatusOK)
		expect("wrong", http.StatusUnauthorized)
		const want = `level=WARN msg="token lookup failed; call rejected" error="the database is unavailable" peer=192.0.2.1
level=WARN msg="wrong token; call rejected" peer=192.0.2.1
`
		if log.String() != want {
			t.Error(log.String())
		}
	})
}

// TestSlowAuthority checks that a lookup is limited to one second.
func TestSlowAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := adminapi.Lookup(func(ctx context.Context, _ [sha256.Size]byte) (adminapi.Caller, bool, error) {
			<-ctx.Done()
			return adminapi.Caller{}, false, ctx.Err()
		})
		began := time.Now()
		checkProblem(t, serve(newAPI(t, silent, discard), withToken(post(`{}`), "x")), http.StatusServiceUnavailable)
		if elapsed := time.Since(began); elapsed != time.Second {
			t.Error(elapsed)
		}
	})
}

func TestMayRefund(t *testing.T) {
	t.Parallel()
	text, tokens := "", map[string]string{}
	for _, rights := range []string{"", "viewer", "editor", "admin", "admin tenant=acme"} {
		token, line, err := adminapi.NewToken("ann", strings.Fields(rights)...)
		if err != nil {
			t.Fatal(err)
		}
		text, tokens[rights] = text+line+"\n", "Bearer "+token
	}
	file := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, file, text)
	guard := adminapi.NewGuard(readTokens(t, file, discard), discard)
	const (
		required = "a refund requires a token with the role editor, or a reservation: "
		none     = "token required: send Authorization: Bearer TOKEN; headgate token create NAME makes a token"
	)
	for authorization, want := range map[string]string{
		tokens["editor"]:            "",
		tokens["admin"]:             "",
		tokens[""]:                  "a refund requires the role editor, and ann has the role viewer",
		tokens["viewer"]:            "a refund requires the role editor, and ann has the role viewer",
		tokens["admin tenant=acme"]: "a refund may change counters of all tenants, and ann is bound to tenant acme",
		"Bearer wrong":              required + unknownToken,
		"":                          required + none,
	} {
		err := guard.MayRefund(t.Context(), authorization, "192.0.2.1:1")
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: %v", authorization, err)
		}
	}
	for range 20 {
		_ = guard.MayRefund(t.Context(), "Bearer wrong", "192.0.2.2:1")
	}
	if err := guard.MayRefund(t.Context(), "Bearer wrong", "192.0.2.2:2"); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("a peer that guesses is not throttled: %v", err)
	}
	if err := guard.MayRefund(t.Context(), tokens["admin"], "192.0.2.2:2"); err != nil {
		t.Errorf("a valid token is rejected because of wrong ones: %v", err)
	}
}

// TestNothingLeaks checks that neither logs nor responses contain any part of a token, valid or not.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	ours := newIssuer(t)
	file, tokens := writeTokens(t, "ann")
	stored := &database{token: "stored-token-4711"}
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	all := adminapi.Authorities{readTokens(t, file, log), ours.authority(t), adminapi.Lookup(stored.find)}
	h, guard := newAPI(t, all, log), adminapi.NewGuard(all, log)
	sent := []string{
		tokens[0], tokens[0] + "x", "hgt_made-up-by-a-client", stored.token, "%s%x\n" + tokens[0],
		ours.sign(t, nil), ours.sign(t, jwt.MapClaims{"exp": 1}), ours.sign(t, jwt.MapClaims{"role": "secret-role"}),
		newIssuer(t).sign(t, nil), signed(t, jwt.SigningMethodHS256, ours.public, nil),
		"not-base64!!!.not-base64!!!.not-base64!!!",
	}
	output := func() string {
		for _, token := range sent {
			b.Write(serve(h, withToken(post(`{}`), token)).Body.Bytes())
			b.Write(serve(h, withToken(post(`nonsense`), token)).Body.Bytes())
			if err := guard.MayRefund(t.Context(), "Bearer "+token, "192.0.2.3:1"); err != nil {
				b.WriteString(err.Error())
			}
		}
		return b.String()
	}
	output()
	stored.err = errors.New("unavailable")
	text := output()
	for _, want := range []string{"caller=ann", "caller=eve", "error=unavailable", "token is expired"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in the output: a case was not reached", want)
		}
	}
	for _, token := range append(sent, "secret-role") {
		for part := range strings.SplitSeq(token, ".") {
			if strings.Contains(text, part) {
				t.Errorf("%s is in\n%s", part, text)
			}
		}
	}
}

// FuzzCaller checks that made-up tokens have no caller, and that errors are fixed texts.
func FuzzCaller(f *testing.F) {
	ours := newIssuer(f)
	file, tokens := writeTokens(f, "ann")
	known, err := adminapi.ReadTokens(file, discard)
	if err != nil {
		f.Fatal(err)
	}
	stored := &database{token: "stored token"}
	all := adminapi.Authorities{known, ours.authority(f), adminapi.Lookup(stored.find)}
	theirs := []string{tokens[0], stored.token, ours.sign(f, nil)}
	for _, token := range theirs {
		f.Add(token)
		f.Add(token[1:])
		f.Add(token[:len(token)-1])
	}
	for _, token := range []string{
		"", ".", "..", "a.b.c", "Bearer x", "eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJIUzI1NiJ9.e30.AA", "eyJhbGciOiJFZERTQSJ9.bnVsbA.AA",
		newIssuer(f).sign(f, nil), signed(f, jwt.SigningMethodHS256, ours.public, nil), strings.Repeat("x", 20<<10) + "..",
	} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		caller, err := all.Caller(t.Context(), token)
		for _, valid := range theirs {
			if token == valid {
				if err != nil || caller.Name == "" {
					t.Fatalf("%+v, %v", caller, err)
				}
				return
			}
		}
		if err == nil || caller != (adminapi.Caller{}) {
			t.Fatalf("%q is the token of %+v", token, caller)
		}
		if text := err.Error(); text != unknownToken && text != invalidToken+"not signed by a known key" {
			t.Fatalf("%q: %v", token, err)
		}
	})
}
