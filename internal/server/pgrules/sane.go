package pgrules

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

const (
	// probes is how many clients are tried, one a second.
	probes = 100
	// tooMany of them denied means that everybody would be.
	tooMany = 95
)

// checkSane returns the compiled rules, or an error if they are valid one by one and still harmful: there are none, or they deny
// all clients. Nobody can publish that, and nodes do not take it from a table that was written to by hand.
func checkSane(ctx context.Context, rules []headgate.Rule, mode headgate.Mode) (*headgate.RuleSet, error) {
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: no rule would be left: to let everything pass set the mode to off", ErrDenied)
	}
	set, err := headgate.Compile(rules...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	set = set.WithMode(mode)
	named, worst := simulateClients(ctx, set, true)
	if named < tooMany {
		return set, nil
	}
	if anonymous, _ := simulateClients(ctx, set, false); anonymous < tooMany {
		return set, nil
	}
	return nil, fmt.Errorf("%w: of %d clients that come once, one a second, %d would be denied, last by rule %q: these rules "+
		"deny everybody", ErrDenied, probes, named, worst)
}

// simulateClients returns how many of some clients that send one request each are denied, and by which rule the last one was. They
// have all attributes that rules look at, or only an address.
func simulateClients(ctx context.Context, set *headgate.RuleSet, named bool) (denied int, by string) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
	limiter := headgate.NewLimiter(store, set, headgate.Options{})
	for i := range probes {
		now = now.Add(time.Second)
		attributes := headgate.Attributes{
			"ip": "192.0.2." + strconv.Itoa(i), "method": "GET", "path": "/probe/" + strconv.Itoa(i), "host": "probe.example",
		}
		if named {
			for _, name := range set.Attributes() {
				if _, given := attributes[name]; !given && name != headgate.OtherPath && name != headgate.OtherMethod {
					attributes[name] = "probe-" + strconv.Itoa(i)
				}
			}
		}
		d, _ := limiter.Check(context.WithoutCancel(ctx), headgate.Request{Attributes: attributes})
		if limit := d.DeniedBy(); limit != nil {
			denied, by = denied+1, limit.Rule
		}
	}
	return denied, by
}
