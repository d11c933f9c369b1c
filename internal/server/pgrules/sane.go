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
	// probes is how many clients are simulated, one per second.
	probes = 100
	// minDenied is how many of them must be denied for the rules to count as denying all clients.
	minDenied = 95
)

// checkSane returns the compiled rules, or an error if each of them is valid but together they are harmful: there are none, or they
// deny all clients. Such rules cannot be published, and nodes do not apply them if they were written to the table by hand.
func checkSane(ctx context.Context, rules []headgate.Rule, mode headgate.Mode) (*headgate.RuleSet, error) {
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: no rule would remain: to allow all requests, set the mode to off", ErrRejected)
	}
	set, err := headgate.Compile(rules...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	set = set.WithMode(mode)
	named, worst := simulateClients(ctx, set, true)
	if named < minDenied {
		return set, nil
	}
	if anonymous, _ := simulateClients(ctx, set, false); anonymous < minDenied {
		return set, nil
	}
	return nil, fmt.Errorf("%w: the rules would deny all clients: of %d simulated clients with one request each, one per second, %d "+
		"would be denied, the last by rule %q: raise its limit", ErrRejected, probes, named, worst)
}

// simulateClients returns how many of the simulated clients, with one request each, are denied, and the rule that denied the last.
// If named is true, the clients have all attributes that rules use, otherwise only an address.
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
