package redisstore

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// documented is the ACL SETUSER line of docs/redis.md.
func documented(t *testing.T) []string {
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

// asUser is an address with the user of the documentation in it.
func asUser(address string) string { return strings.Replace(address, "://", "://headgate:secret@", 1) }

// TestRights does all that a store does, as a user with the documented rights.
func TestRights(t *testing.T) {
	t.Parallel()
	line := documented(t)
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
			heard, _ := listen(t, s, "news")
			if err := s.Publish(t.Context(), "news", []byte("a")); err != nil {
				t.Error(err)
			}
			hears(t, heard, "a")
			for _, limit := range everyAlgorithm() {
				if _, err := headgate.Take(t.Context(), s, limit, "a", "b"); err != nil {
					t.Error(err)
				}
			}
			if list, err := s.Servers(t.Context()); err != nil {
				t.Errorf("%+v, %v", list, err)
			}
			s.heartbeat(t.Context())
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

// TestRightsMissing: whoever lacks a right is told which.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.Must(t, documented(t)...)
	server.Must(t, "ACL", "SETUSER", "headgate", "-info", "-publish", "-subscribe")
	s := open(t, asUser(standalone(server)))
	says := func(err error, right string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), right) {
			t.Errorf("%v does not say %s", err, right)
		}
	}
	_, err := s.Servers(t.Context())
	says(err, "+info")
	says(s.Publish(t.Context(), "news", nil), "+publish &hg2:headgate:*")
	says(s.Subscribe(t.Context(), []string{"news"}, func(string, []byte) {}), "+subscribe &hg2:headgate:*")
	server.Must(t, "ACL", "SETUSER", "headgate", "+publish", "+subscribe", "resetchannels")
	says(s.Publish(t.Context(), "news", nil), "&hg2:headgate:*")
	says(s.Subscribe(t.Context(), []string{"news"}, func(string, []byte) {}), "&hg2:headgate:*")
}
