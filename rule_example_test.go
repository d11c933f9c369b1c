package headgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// Rules written in Go.
func ExampleNew() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{
			ID:    "login-by-ip",
			Match: headgate.Match{Path: "/login", Method: "POST"},
			By:    []string{"ip"},
			Limit: headgate.PerMinute(2),
		},
		headgate.Rule{
			ID:    "exports",
			Match: headgate.Match{Path: "/reports/{id}", Attributes: map[string]headgate.Pattern{"tenant": headgate.IsPresent()}},
			By:    []string{"tenant", "user"},
			Limits: map[string]headgate.Limit{
				"peak":  headgate.PerSecond(5),
				"month": headgate.Quota(100_000, headgate.Month, time.UTC),
			},
			Tiers: map[string]headgate.Plan{"free": {Limits: map[string]headgate.Limit{"peak": headgate.PerSecond(1)}}},
			Cost:  headgate.Cost{From: "header.x-rows", Default: 1, Max: 10_000},
		},
		headgate.Rule{ID: "everything", By: headgate.Global, Limit: headgate.PerMinute(50_000), Mode: headgate.Shadow},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		decision, _ := limiter.Check(context.Background(), headgate.Request{
			Attributes: headgate.Attributes{"path": "/login", "method": "POST", "ip": "192.0.2.1"},
		})
		if denied := decision.DeniedBy(); denied != nil {
			fmt.Println("denied by", denied.Rule, "for", decision.RetryAfter.Round(time.Second))
			continue
		}
		shown := decision.Shown()
		fmt.Println("allowed;", shown.Remaining, "left of", shown.Rule)
	}
	// Output:
	// allowed; 1 left of login-by-ip
	// allowed; 0 left of login-by-ip
	// denied by login-by-ip for 30s
}

// Compile reports all mistakes in the rules together, and how to fix them.
func ExampleCompile() {
	_, err := headgate.Compile(
		headgate.Rule{ID: "login", Limit: headgate.PerMinute(10)},
		headgate.Rule{ID: "files", Match: headgate.Match{Path: "/files/*.json"}, By: []string{"usr"}},
	)
	fmt.Println(err)
	// Output:
	// rule "login": by: required: write by: [ip] to count by address, or by: [] for one counter for all requests
	// rule "files": match.path: path "/files/*.json": segment "*.json": must be text, * or {name}: write * and a condition in when
	// rule "files": by: unknown attribute "usr": must be one of ip, client, api_key, user, service_account, tenant, tier, method, host, path, route, user_agent, region, domain, entries, or have the prefix of its source: header.x, cookie.x, claim.x or descriptor.x
	// rule "files": limit: required: write limit: 10/minute, or limits with a name for each
}

// One customer needs more until Friday; another is not limited at all.
func ExampleExceptions() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "search", By: []string{"api_key"}, Limit: headgate.PerMinute(1),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	friday := time.Now().Add(72 * time.Hour)
	err = limiter.Exceptions().Set(headgate.Override{
		Rule: "search", Subject: headgate.Attributes{"api_key": "acme"}, Limit: headgate.PerMinute(1000), Expires: friday,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = limiter.Exceptions().Exempt(headgate.Exemption{Rule: "search", Attribute: "ip", Value: "10.0.0.0/8", Reason: "probes"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range []headgate.Attributes{{"api_key": "acme"}, {"api_key": "other"}, {"api_key": "other", "ip": "10.1.2.3"}} {
		decision, _ := limiter.Check(context.Background(), headgate.Request{Attributes: a})
		for _, l := range decision.Limits {
			fmt.Println(l.Rule, l.Remaining, "left, limit of", l.Origin)
		}
		fmt.Println(decision.Allowed, decision.Path)
	}
	// Output:
	// search 999 left, limit of override
	// true store
	// search 0 left, limit of rule
	// true store
	// true exempt
}

func ExampleHashKey() {
	fmt.Println(headgate.HashKey("k-12345"))
	// Output: sha256:8BgO_c44N2VRnyi8HNtnmG
}
