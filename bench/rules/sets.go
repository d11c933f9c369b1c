package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"

	"github.com/headgate/headgate"
)

const many = 10_000

// rulesOf returns ten thousand rules that never charge: they count by an attribute that no request has, and skip requests
// without it. So a check costs little but the matching.
func rulesOf(match func(i int) headgate.Match) []headgate.Rule {
	rules := make([]headgate.Rule, many)
	for i := range rules {
		rules[i] = headgate.Rule{
			ID: name("rule", i), Match: match(i), Limit: headgate.PerMinute(int64(100 + i)),
			By: []string{"service_account"}, OnMissing: headgate.SkipMissing,
		}
	}
	return rules
}

// mixed returns 60 % path templates, 20 % tenants, 10 % header prefixes, 5 % networks, 5 % hosts, and five that match all requests.
func mixed(i int) headgate.Match {
	group, place := i/20, i%20
	switch {
	case i >= many-5:
		return headgate.Match{}
	case place < 12:
		return servicePath(group*12 + place)
	case place < 16:
		return attribute("tenant", headgate.OneOf(name("tenant", group*4+place-12)))
	case place == 16:
		return attribute("header.x-app-version", headgate.HasPrefix(fmt.Sprintf("ios-%d.%d.", group/12, group%12)))
	case place == 17:
		return attribute("user_agent", headgate.HasPrefix(name("partner", group)+"/"))
	case place == 18:
		network := []string{"2001:db8:%x::/48", "10.%d.0.0/16", "10.%d.128.0/20", "10.%d.7.0/24"}[group%4]
		return attribute("ip", headgate.InCIDR(netip.MustParsePrefix(fmt.Sprintf(network, group/2))))
	case group%2 == 0:
		return headgate.Match{Host: name("shop", group) + ".example.com"}
	}
	return headgate.Match{Host: "*." + name("team", group) + ".example.net"}
}

// servicePath returns one of four templates for each of ten resources of 150 services.
func servicePath(i int) headgate.Match {
	base := "/api/v1/" + name("service", i/40) + "/" + name("resource", i/4%10)
	return []headgate.Match{
		{Path: base, Method: "POST"},
		{Path: base + "/{id}", Method: "GET"},
		{Path: base + "/{id}/history/{entry}", Method: "GET"},
		{Path: base + "/{id}/**"},
	}[i%4]
}

func perTenant(i int) headgate.Match {
	return headgate.Match{Path: "/api/**", Attributes: map[string]headgate.Pattern{"tenant": headgate.OneOf(name("tenant", i))}}
}

// perTemplate returns distinct templates with wildcards, some of which overlap: four for 25 resources of 100 services.
func perTemplate(i int) headgate.Match {
	service, resource := name("service", i%100), name("resource", i/100%25)
	return []headgate.Match{
		{Path: "/{region}/" + service + "/{id}/" + resource},
		{Path: "/{region}/" + service + "/{id}/" + resource + "/{sub}/**"},
		{Path: "/eu/" + service + "/*/" + resource + "/{sub}"},
		{Path: "/{region}/*/" + service + "/" + resource + "/{id}", Method: "GET"},
	}[i/2500]
}

func attribute(name string, p headgate.Pattern) headgate.Match {
	return headgate.Match{Attributes: map[string]headgate.Pattern{name: p}}
}

// request is a request under construction.
type request struct {
	*rand.Rand
	headgate.Attributes
}

// requestsOf returns requests with 9 to 12 attributes. Most are for few services, tenants and partners, and some match no
// rule.
func requestsOf(change func(*request)) []headgate.Attributes {
	r := &request{Rand: rand.New(rand.NewPCG(1, 2))}
	requests := make([]headgate.Attributes, 4096)
	for i := range requests {
		base, id := "/api/v1/"+name("service", r.skewed(150))+"/"+name("resource", r.IntN(10)), "/"+strconv.Itoa(r.IntN(1_000_000))
		r.Attributes = headgate.Attributes{
			"method": r.pick("GET", "GET", "GET", "POST", "PUT"), "tier": r.pick("free", "free", "pro"),
			"path": r.pick(base, base+id, base+id, base+id, base+id+"/history/7", base+id+"/history/7", base+id+"/tags",
				base+id+"/files/2026/11/a.pdf", base+"-unknown/1/2/3", "/assets/app.js"),
			"host": r.pick("api.example.com", "api.example.com", name("shop", r.IntN(500))+".example.com",
				"a."+name("team", r.IntN(500))+".example.net"),
			"ip": r.pick(fmt.Sprintf("203.0.%d.%d", r.IntN(256), r.IntN(256)), fmt.Sprintf("10.%d.%d.9", r.IntN(256), r.IntN(256)),
				fmt.Sprintf("2001:db8:%x:7::/64", r.IntN(250))),
			"api_key": headgate.HashKey(strconv.FormatUint(r.Uint64(), 36)), "tenant": name("tenant", r.skewed(2*many)),
			"header.accept-language": "de-DE,de;q=0.9,en;q=0.8",
			"user_agent":             r.pick("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", name("partner", r.skewed(500))+"/1.4"),
		}
		for _, more := range []string{"header.x-app-version", "region", "user"}[:r.IntN(4)] {
			r.Attributes[more] = fmt.Sprintf("ios-%d.%d.4", r.IntN(50), r.IntN(14))
		}
		change(r)
		requests[i] = r.Attributes
	}
	return requests
}

// toTemplates changes the path to one of perTemplate's, or to another service in a tenth of the requests.
func toTemplates(r *request) {
	service, resource := name("service", r.skewed(110)), name("resource", r.IntN(25))
	base := "/" + r.pick("eu", "us", "ap") + "/" + service + "/" + strconv.Itoa(r.IntN(1_000_000)) + "/" + resource
	r.Attributes["path"] = r.pick(base, base+"/tags", base+"/tags/7", base+"/files/2026/11/a.pdf", "/us/v2/"+service+"/"+resource+"/12",
		"/us/v2/"+service)
}

// toCheckout changes the attributes so that no rule of mixed matches.
func toCheckout(r *request) {
	delete(r.Attributes, "header.x-app-version")
	r.Attributes["path"], r.Attributes["tenant"], r.Attributes["host"] = "/checkout/7/pay", "acme", "api.example.com"
	r.Attributes["user_agent"] = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
}

func (r *request) pick(values ...string) string { return values[r.IntN(len(values))] }

// skewed returns a number below n, mostly a small one.
func (r *request) skewed(n int) int {
	x := r.Float64()
	return int(float64(n) * x * x * x)
}

func name(kind string, i int) string { return kind + "-" + strconv.Itoa(i) }
