package explain

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestHome shows the homes of subjects, and which of them did not decide. The rules are named after their homes, and eu is this region.
func TestHome(t *testing.T) {
	t.Parallel()
	by := func(path headgate.Path, rule string) headgate.LimitDecision {
		l := within(rule)
		if l.Path = path; path == headgate.PathFailed {
			l.Allowed, l.Err = false, headgate.ErrUnavailable
		}
		return l
	}
	const store, local, failed = headgate.PathStore, headgate.PathLocal, headgate.PathFailed
	for name, test := range map[string]struct {
		limits                  []headgate.LimitDecision
		summary, counters, keys string
		redisUnavailable        bool
	}{
		"decided": {
			[]headgate.LimitDecision{by(store, "us"), by(store, "eu"), by(store, "none")},
			"allowed: within 3 limits",
			"redis://r and region us", "us, in region us|eu|none", false,
		},
		"all in another region": {[]headgate.LimitDecision{by(store, "us")}, "allowed: within 1 limit", "region us", "us, in region us", false},
		"home unavailable": {
			[]headgate.LimitDecision{by(local, "us"), by(store, "ap"), by(store, "none")},
			"allowed: within 3 limits; home region us is unavailable: decided by this node's local fallback share",
			"redis://r, region ap and this node's local fallback share: region us is unavailable", "ap, in region ap|none", false,
		},
		"denied": {
			[]headgate.LimitDecision{by(failed, "us")},
			"503: denied by us; home region us is unavailable: decided by the rule's on_store_failure",
			"unknown: region us is unavailable", "", false,
		},
		"this region is the home": {
			[]headgate.LimitDecision{by(local, "eu")},
			"allowed: within 1 limit; Redis is unavailable: decided by this node's local fallback share",
			"this node's local fallback share: redis://r is unavailable", "", true,
		},
		"both": {
			[]headgate.LimitDecision{by(local, "us"), by(local, "none")},
			"allowed: within 2 limits; Redis and home region us are unavailable: decided by this node's local fallback share",
			"this node's local fallback share: redis://r and region us are unavailable", "", true,
		},
	} {
		e := explanation(test.limits...)
		for _, rule := range []string{"us", "eu", "ap", "none"} {
			e.Rules = append(e.Rules, headgate.RuleExplanation{Rule: headgate.Rule{ID: rule}, Applies: true, Subject: headgate.Attributes{"user": "ann"}})
		}
		r := New(e, Question{}, Place{Redis: "redis://r", Key: func(headgate.Subject) string { return "key" }, Home: func(l *headgate.LimitDecision) *Home {
			home := &Home{Name: l.Rule, Own: l.Rule == "eu"}
			if l.DecidedBy() != store && !home.Own {
				home.Problem = "does not respond: connection refused"
			}
			if l.Rule == "none" {
				return nil
			}
			return home
		}})
		text := r.Text()
		_, keys, _ := strings.Cut(text, "FIELD (HEX)   RULE\n")
		rows := strings.Fields(strings.ReplaceAll(keys, ", in region ", ",_in_region_"))
		var rules []string
		for i := 2; i < len(rows); i += 3 {
			rules = append(rules, strings.ReplaceAll(rows[i], "_", " "))
		}
		if r.Summary != test.summary || r.RedisUnavailable != test.redisUnavailable || !strings.Contains(text, "  counters  "+test.counters+"\n") ||
			strings.Join(rules, "|") != test.keys {
			t.Errorf("%s: Redis unavailable %v, keys %q\n%s", name, r.RedisUnavailable, rules, text)
		}
		note := "  us: region us, the home of user=ann, does not respond: connection refused\n"
		if strings.Contains(text, note) != (test.limits[0].Rule == "us" && test.limits[0].DecidedBy() != store) {
			t.Errorf("%s: notes:\n%s", name, text)
		}
		for home, shown := range map[string]string{"us": "user=ann, home us  ", "eu": "user=ann, home eu (this region)  "} {
			if test.limits[0].Rule == home && !strings.Contains(text, shown) {
				t.Errorf("%s: home:\n%s", name, text)
			}
		}
	}
}
