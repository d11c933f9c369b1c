package attack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
)

// The layout of a token is public: a version, a nonce of 8 bytes, the reservation, and 16 bytes of a signature.
const (
	tokenNonce = 8
	tokenMAC   = 16
)

// forgeRules has a limit that a cancel refunds at once, so that a forged cancel has an effect.
const forgeRules = `rules:
  - {id: posts, by: [user], limit: {algorithm: sliding_log, rate: 20/hour}}
`

// reply is a response of the service.
type reply struct {
	status      int
	Allowed     bool
	Reservation string
	RetryAfter  float64 `json:"retry_after"`
	Limits      []struct{ Cost, Granted, Remaining int64 }
	Detail      string
}

// post sends a JSON request to a server.
func post(t *testing.T, node *fleet.Node, path, body string) (r reply) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+node.HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", path, err, text)
	}
	r.status = response.StatusCode
	return r
}

func redisConfig(redis *testenv.Server) string {
	return fmt.Sprintf("redis: {address: %q, deadline: 1s}\n", "redis://"+redis.Addr())
}

// allowed sends n requests and returns how many were allowed.
func allowed(t *testing.T, node *fleet.Node, user string, n int) (passed int) {
	t.Helper()
	for range n {
		if post(t, node, "/v1/check", fmt.Sprintf(`{"attributes": {"user": %q}}`, user)).Allowed {
			passed++
		}
	}
	return passed
}

func reserve(t *testing.T, node *fleet.Node, user string, cost int) string {
	t.Helper()
	r := post(t, node, "/v1/reserve", fmt.Sprintf(`{"attributes": {"user": %q}, "cost": %d}`, user, cost))
	if !r.Allowed || r.Reservation == "" {
		t.Fatalf("reserve: %+v", r)
	}
	return r.Reservation
}

func settle(t *testing.T, node *fleet.Node, operation, token string) reply {
	t.Helper()
	return post(t, node, "/v1/"+operation, fmt.Sprintf(`{"reservation": %q}`, token))
}

// TestForgedReservation cancels forged reservations, signed with every key that an attacker may know, on servers without a
// secret_file. Each would refund spent units.
func TestForgedReservation(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	one, two := startServer(t, redisConfig(redis), forgeRules), startServer(t, redisConfig(redis), forgeRules)
	genuine := reserve(t, one, "mallory", 20)
	token, err := base64.RawURLEncoding.DecodeString(genuine)
	if err != nil {
		t.Fatal(err)
	}
	attempts, taken, passed := 0, 0, 0
	for range size(5, 50) {
		for _, key := range guesses() {
			forged := slices.Clone(token)
			for i := range tokenNonce {
				forged[1+i] = byte(rand.IntN(256)) // another reservation of the same cost
			}
			forged = append(forged[:len(forged)-tokenMAC], signed(key, forged[:len(forged)-tokenMAC])...)
			attempts++
			if settle(t, one, "cancel", base64.RawURLEncoding.EncodeToString(forged)).status == http.StatusOK {
				taken++
				passed += allowed(t, one, "mallory", 20)
			}
		}
	}
	t.Logf("%d forged cancels: %d accepted, %d requests allowed over an exhausted limit of 20", attempts, taken, passed)
	if taken > 0 || passed > 0 {
		t.Errorf("%d of %d forged tokens were accepted, %d requests allowed", taken, attempts, passed)
	}
	if r := settle(t, two, "cancel", genuine); r.status != http.StatusOK {
		t.Errorf("another node rejects the genuine token: %+v", r)
	}
	if n := allowed(t, two, "mallory", 30); n != 20 {
		t.Errorf("%d of 20 allowed after the genuine cancel", n)
	}
}

// signed returns the signature of a token.
func signed(key, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return mac.Sum(nil)[:tokenMAC]
}

// guesses returns keys that an attacker may know: constants of the code, names in responses, and trivial keys.
func guesses() [][]byte {
	keys := [][]byte{nil}
	for _, name := range []string{"", "reservation", "reservation\x00", "reservation\x00headgate", "headgate", "posts", "hg2:headgate:key", "key"} {
		keys = append(keys, []byte(name), signedWhole(nil, name), signedWhole([]byte("reservation\x00"), name))
	}
	for _, n := range []int{16, 26, 32} {
		keys = append(keys, make([]byte, n))
	}
	return keys
}

func signedWhole(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// TestReservationOfAnotherNamespace settles a genuine token at servers of another namespace that share Redis and secret_file.
func TestReservationOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	for name, secret := range map[string]string{"no secret": "", "one secret": "secret_file: secret\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := func(namespace string) *fleet.Node {
				return startServerWith(t, fmt.Sprintf("redis: {address: %q, deadline: 1s, namespace: %q}\n%s", "redis://"+redis.Addr(), namespace+name[:2], secret),
					forgeRules, map[string]string{"secret": "the same secret everywhere"})
			}
			here, there := start("here"), start("there")
			token := reserve(t, here, "ann", 20)
			reserve(t, there, "ann", 20)
			for _, operation := range []string{"cancel", "commit"} {
				if r := settle(t, there, operation, token); r.status != http.StatusBadRequest {
					t.Errorf("%s of a token of another namespace: %+v", operation, r)
				}
			}
			if n := allowed(t, there, "ann", 20); n != 0 {
				t.Errorf("%d allowed over the limit", n)
			}
		})
	}
}

// TestHugeCommitDoesNotLockOut commits far more than was reserved, for another user.
func TestHugeCommitDoesNotLockOut(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{
		"100/hour", "{algorithm: fixed_window, rate: 100/hour}", "{algorithm: sliding_window, rate: 100/hour}",
		"{algorithm: sliding_log, rate: 100/hour}", "{algorithm: leaky_bucket, rate: 100/hour}, max_delay: 10m",
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			node := startServer(t, redisConfig(startRedis(t)), "rules: [{id: posts, by: [user], limit: "+limit+"}]\n")
			token := reserve(t, node, "victim", 1)
			if r := post(t, node, "/v1/commit", fmt.Sprintf(`{"reservation": %q, "cost": 1000000000}`, token)); r.status != http.StatusOK {
				t.Fatalf("%+v", r)
			}
			r := post(t, node, "/v1/check", `{"attributes": {"user": "victim"}}`)
			wait := time.Duration(r.RetryAfter * float64(time.Second)).Round(time.Second)
			t.Logf("%s: a commit of a billion denies for %v", limit, wait)
			if wait > 2*time.Hour {
				t.Errorf("%s: a commit of a billion denies for %v", limit, wait)
			}
		})
	}
}

// TestReserveWithoutSigningKey reserves at a server that has never reached Redis. It must not sign with a guessable key, and must
// still decide checks.
func TestReserveWithoutSigningKey(t *testing.T) {
	t.Parallel()
	node := startServer(t, fmt.Sprintf("redis: {address: %q}\n", "redis://"+testenv.FreeAddress(t)), forgeRules)
	r := post(t, node, "/v1/reserve", `{"attributes": {"user": "ann"}}`)
	if r.status != http.StatusServiceUnavailable || r.Reservation != "" || !strings.Contains(r.Detail, "secret") {
		t.Errorf("reserve: %+v", r)
	}
	if n := allowed(t, node, "ann", 30); n != 20 {
		t.Errorf("%d of 20 allowed by the local fallback share", n)
	}
}
