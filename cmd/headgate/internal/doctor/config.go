package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/config"
)

// Prefix lengths below which a network of trusted proxies is suspicious: all of 10.0.0.0/8 is one organisation's.
const (
	widestIPv4 = 8
	widestIPv6 = 16
)

// CheckListeners examines who can reach the listeners, and with which credentials.
func CheckListeners(c *config.Config) []Finding {
	var all []Finding
	add := func(check string, status Status, detail, remedy string) {
		all = append(all, Finding{Section: SectionListeners, Check: check, Status: status, Detail: detail, Remedy: remedy})
	}
	tls, certificates := c.Listen.TLS.CertFile != "", c.Listen.TLS.ClientCAFile != ""
	for _, l := range []struct {
		name, address string
		refunds       bool
	}{{"http", c.Listen.HTTP, c.Listen.AllowRefunds.HTTP}, {"grpc", c.Listen.GRPC, c.Listen.AllowRefunds.GRPC}} {
		switch {
		case l.address == "":
			add(l.name, OK, "off", "")
		case !netaddr.IsReachable(l.address):
			add(l.name, OK, l.address+": only this host", "")
		case l.refunds && c.Callers.Open:
			add(l.name, Problem, l.address+" is open, and its callers may refund: any host that reaches it can cancel out any limit", "remove "+l.name+" from listen.allow_refunds")
		case c.Callers.Open:
			add(l.name, Warning, l.address+" is open: any host that reaches it can exhaust the limits of any client", "listen.tokens_file: /etc/headgate/callers, with lines from headgate token create NAME --role caller")
		case c.Callers.TokensFile != "" && !tls:
			add(l.name, Warning, l.address+" requires tokens, which cross the network in the clear", "listen.tls: {cert_file: …, key_file: …}")
		case certificates:
			add(l.name, OK, l.address+" requires client certificates", "")
		default:
			add(l.name, OK, l.address+" requires tokens, over TLS", "")
		}
	}
	if file := c.Callers.TokensFile; file != "" {
		tokens, err := adminapi.ReadTokens(file, slog.New(slog.DiscardHandler))
		switch {
		case errors.Is(err, fs.ErrNotExist): // a problem of the config
		case err != nil:
			add("listen.tokens_file", Problem, err.Error(), "correct that line, or remove it")
		case !tokens.Has(adminapi.CallerRole):
			add("listen.tokens_file", Problem, file+" has no token with the role caller: all callers are rejected", "headgate token create NAME --role caller, and append its line to the file")
		}
	}
	switch {
	case c.Listen.Ops == "":
		add("ops", Warning, "off: no health checks, no metrics, no headgate status", "listen.ops: "+config.Default().Listen.Ops)
	case netaddr.IsReachable(c.Listen.Ops):
		add("ops", OK, c.Listen.Ops+" has no credentials by design: let only Prometheus and load balancers reach it", "")
	default:
		add("ops", OK, c.Listen.Ops+": only this host", "")
	}
	tokens := c.AdminTokensFile != "" || len(c.AdminJWT.Algorithms) > 0 || c.Postgres.Address != ""
	switch {
	case c.Listen.Admin == "":
		add("admin", OK, "off: no headgate explain, top, denials or override for this server", "")
	case !tokens:
		add("admin", OK, "off, because no tokens are configured: no headgate explain, top, denials or override for this server", "")
	case netaddr.IsReachable(c.Listen.Admin) && !certificates:
		add("admin", OK, c.Listen.Admin+" requires tokens, over TLS: let only operators reach it", "")
	case netaddr.IsReachable(c.Listen.Admin):
		add("admin", OK, c.Listen.Admin+" requires tokens and client certificates", "")
	default:
		add("admin", OK, c.Listen.Admin+": only this host, with tokens", "")
	}
	return all
}

// CheckIdentity examines which forwarded addresses are trusted. byAddress is whether a rule counts by the address of clients.
func CheckIdentity(c *config.Config, byAddress bool) []Finding {
	finding := func(status Status, detail, remedy string) Finding {
		return Finding{Section: SectionIdentity, Check: "trusted_proxies", Status: status, Detail: detail, Remedy: remedy}
	}
	if hops := c.Identity.TrustedHops; hops > 0 {
		if c.Callers.Open && netaddr.IsReachable(c.Listen.HTTP) {
			return []Finding{finding(Problem, fmt.Sprintf("trusted_hops is %d and listen.http is open: any host that reaches it can claim any address", hops),
				"identity.trusted_proxies: [NETWORK OF YOUR PROXIES]")}
		}
		return []Finding{finding(OK, fmt.Sprintf("trusted_hops is %d: every peer that can connect is trusted", hops), "")}
	}
	proxies := c.Identity.TrustedProxies
	if len(proxies) == 0 {
		if byAddress && c.Listen.HTTP != "" {
			return []Finding{finding(Warning, "none, and rules count by address: with forward-auth, all clients behind a gateway are one client. "+
				"Callers that send the attribute ip, such as Envoy, do not need it", "identity.trusted_proxies: [127.0.0.1/32], or the network of your gateways")}
		}
		return []Finding{finding(OK, "none", "")}
	}
	var all []Finding
	for _, p := range proxies {
		widest := widestIPv6
		if p.Addr().Is4() {
			widest = widestIPv4
		}
		switch {
		case p.Bits() == 0:
			all = append(all, finding(Problem, p.String()+" trusts all addresses: any client can claim any address, and escape its limits", "identity.trusted_proxies: [NETWORK OF YOUR PROXIES]"))
		case p.Bits() < widest:
			all = append(all, finding(Warning, p.String()+" is wider than the network of one organisation: clients in it can claim any address", "identity.trusted_proxies: [NETWORK OF YOUR PROXIES]"))
		}
	}
	if len(all) == 0 {
		all = []Finding{finding(OK, joinPrefixes(proxies), "")}
	}
	return all
}

func joinPrefixes(prefixes []netip.Prefix) string {
	words := make([]string, len(prefixes))
	for i, p := range prefixes {
		words[i] = p.String()
	}
	return strings.Join(words, ", ")
}
