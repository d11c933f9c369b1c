package redisstore

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// documentedUser returns the words of the ACL SETUSER line in docs/redis.md.
func documentedUser(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?s)ACL SETUSER headgate .*?\n` + "```").Find(text)
	if line == nil {
		t.Fatal("docs/redis.md has no ACL SETUSER line")
	}
	return strings.Fields(strings.NewReplacer("```", "", "\\\n", " ").Replace(string(line)))
}

// asUser returns an address with the documented user.
func asUser(address string) string { return strings.Replace(address, "://", "://headgate:secret@", 1) }

// TestRights uses all functions of a store as a user with the documented rights.
func TestRights(t *testing.T) {
	t.Parallel()
	line := documentedUser(t)
	for name, start := range map[string]func(*testing.T) (string, []*testenv.Server){
		"redis": func(t *testing.T) (string, []*testenv.Server) {
			s := startServer(t)
			return standalone(s) + "/1", []*testenv.Server{s}
		},
		"valkey": func(t *testing.T) (string, []*testenv.Server) {
			s := testenv.Start(t, testenv.Valkey)
			return standalone(s), []*testenv.Server{s}
		},
		"sentinel": func(t *testing.T) (string, []*testenv.Server) {
			s := startSentinels(t)
			return sentinels(s), s.Servers()
		},
		"cluster": func(t *testing.T) (string, []*testenv.Server) {
			c := startCluster(t)
			return cluster(c), c.Servers()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, all := start(t)
			for _, server := range all {
				server.Must(t, line...)
				server.Must(t, "ACL", "LOG", "RESET")
			}
			s := open(t, asUser(address))
			received, _ := listen(t, s, "news")
			if err := s.Publish(t.Context(), "news", []byte("a")); err != nil {
				t.Error(err)
			}
			expectMessage(t, received, "a")
			for _, limit := range everyAlgorithm() {
				if _, err := headgate.Take(t.Context(), s, limit, "a", "b"); err != nil {
					t.Error(err)
				}
			}
			if list, err := s.Servers(t.Context()); err != nil {
				t.Errorf("%+v, %v", list, err)
			}
			s.heartbeat(t.Context())
			if _, _, err := s.SwapWeights(t.Context(), "a", "", "b"); err != nil {
				t.Error(err)
			}
			for _, server := range all {
				if denied, _ := server.Must(t, "ACL", "LOG").([]any); len(denied) > 0 {
					t.Errorf("%s denied %v", server.Addr(), denied)
				}
			}
		})
	}
}

func everyAlgorithm() []headgate.Limit {
	var limits []headgate.Limit
	for _, a := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	} {
		l := headgate.PerMinute(10)
		l.Algorithm = a
		limits = append(limits, l)
	}
	return limits
}

// TestRightsMissing checks that errors name the missing right.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.Must(t, documentedUser(t)...)
	server.Must(t, "ACL", "SETUSER", "headgate", "-info", "-publish", "-subscribe")
	s := open(t, asUser(standalone(server)))
	expectRight := func(err error, right string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), right) {
			t.Errorf("%v does not name %s", err, right)
		}
	}
	_, err := s.Servers(t.Context())
	expectRight(err, "+info")
	expectRight(s.Publish(t.Context(), "news", nil), "+publish &hg2:headgate:*")
	expectRight(s.Subscribe(t.Context(), []string{"news"}, func(string, []byte) {}), "+subscribe &hg2:headgate:*")
	server.Must(t, "ACL", "SETUSER", "headgate", "+publish", "+subscribe", "resetchannels")
	expectRight(s.Publish(t.Context(), "news", nil), "&hg2:headgate:*")
	expectRight(s.Subscribe(t.Context(), []string{"news"}, func(string, []byte) {}), "&hg2:headgate:*")
}
