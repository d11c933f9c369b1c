package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// The headers in which proxies report the client's address.
const (
	// XForwardedFor is a list of addresses. The last one is the peer of the nearest proxy.
	XForwardedFor = "X-Forwarded-For"
	// Forwarded is the header of RFC 7239: for=192.0.2.1;proto=https, for="[2001:db8::1]:4711"
	Forwarded = "Forwarded"
)

// maxHops caps the number of addresses that are evaluated: longer lists are forged by clients.
const maxHops = 64

// proxies determines the client's address from the peer and the forwarded header.
type proxies struct {
	networks []netip.Prefix
	hops     int
	unix     bool
	header   field
	quoted   bool // the header is Forwarded, whose values may be quoted
	bits     int  // prefix length of IPv6 addresses that count as one client
}

func newProxies(o Options) (*proxies, error) {
	p := &proxies{hops: o.TrustedHops, unix: o.TrustUnix, bits: o.IPv6Prefix}
	if len(o.TrustedProxies) > 0 && o.TrustedHops > 0 {
		return nil, errors.New("TrustedProxies and TrustedHops: set only one of them")
	}
	for _, network := range o.TrustedProxies {
		if !network.IsValid() || network.Bits() == 0 {
			return nil, fmt.Errorf("TrustedProxies: %s trusts every peer, so any client could claim any address: list the networks of "+
				"your proxies, or set TrustedHops to their number", network)
		}
		if a := network.Addr(); a.Is4In6() && network.Bits() >= 96 {
			network = netip.PrefixFrom(a.Unmap(), network.Bits()-96)
		}
		p.networks = append(p.networks, network.Masked())
	}
	if p.hops < 0 || p.hops >= maxHops {
		return nil, fmt.Errorf("TrustedHops %d: must be 0 to %d, the number of proxies that a request passes", p.hops, maxHops-1)
	}
	switch o.ForwardedHeader {
	case "", XForwardedFor:
		p.header = newField(XForwardedFor)
	case Forwarded:
		p.header, p.quoted = newField(Forwarded), true
	default:
		return nil, fmt.Errorf("ForwardedHeader %q: must be %s or %s", o.ForwardedHeader, XForwardedFor, Forwarded)
	}
	if p.bits == 0 {
		p.bits = 64
	}
	if p.bits < 1 || p.bits > 128 {
		return nil, fmt.Errorf("IPv6Prefix %d: must be 1 to 128", p.bits)
	}
	return p, nil
}

// trusts reports whether the address is that of a trusted proxy. hop is its distance from this server: the peer is 1. An invalid
// address means a peer without an address.
func (p *proxies) trusts(addr netip.Addr, hop int) bool {
	if p.hops > 0 {
		return hop <= p.hops
	}
	if !addr.IsValid() {
		return p.unix
	}
	for _, network := range p.networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// client returns the client's address. It walks from the peer towards the client and stops at the first untrusted address. It also
// stops before an entry that cannot be parsed: any client may have written the entries to the left of it.
func (p *proxies) client(peer netip.Addr, lines []string) netip.Addr {
	at := peer
	hop := 1
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			if hop >= maxHops || !p.trusts(at, hop) {
				return at
			}
			var entry string
			rest, entry, more = cutLast(rest, ',')
			if p.quoted {
				entry = forNode(entry)
			}
			next, ok := parseAddr(strings.TrimSpace(entry))
			if !ok {
				return at
			}
			at = next
			hop++
		}
	}
	return at
}

// text returns the attribute ip of an address.
func (p *proxies) text(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return ""
	case addr.Is4() || p.bits == 128:
		return addr.String()
	}
	network, err := addr.Prefix(p.bits)
	if err != nil {
		return ""
	}
	return network.String()
}

// cutLast cuts the last entry off a list, at an unquoted separator. It reads from the right, so that a quote that a client left open
// cannot absorb the entries that a proxy appended.
func cutLast(list string, separator byte) (rest, last string, more bool) {
	inside := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"' && (!inside || !escaped(list[:i])):
			inside = !inside
		case list[i] == separator && !inside:
			return list[:i], list[i+1:], true
		}
	}
	return "", list, false
}

// escaped reports whether the character after text is escaped: text ends in an odd number of backslashes.
func escaped(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}

// forNode returns the node of the for= parameter in an entry of Forwarded, or "" unless there is exactly one.
func forNode(entry string) string {
	node := ""
	for more := true; more; {
		var pair string
		entry, pair, more = cutLast(entry, ';')
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case strings.TrimSpace(pair) == "":
		case !ok:
			return ""
		case !strings.EqualFold(strings.TrimSpace(name), "for"):
		case node != "":
			return ""
		default:
			if node = unquote(strings.TrimSpace(value)); node == "" {
				return ""
			}
		}
	}
	return node
}

// unquote removes the quotes of a node. It returns "" if the value contains an escape: an address needs none.
func unquote(value string) string {
	if !strings.HasPrefix(value, `"`) {
		return value
	}
	if len(value) < 2 || !strings.HasSuffix(value, `"`) || strings.ContainsAny(value[1:len(value)-1], `"\`) {
		return ""
	}
	return value[1 : len(value)-1]
}

// parseAddr parses an address with or without brackets and port. An IPv4-mapped IPv6 address becomes an IPv4 address. Zones are
// dropped, because they are meaningful only on one host.
func parseAddr(text string) (netip.Addr, bool) {
	host, port := text, ""
	if strings.HasPrefix(text, "[") {
		var ok bool
		if host, port, ok = strings.Cut(text[1:], "]"); !ok || port != "" && port[0] != ':' || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
		port = strings.TrimPrefix(port, ":")
	} else if i := strings.IndexByte(text, ':'); i >= 0 && i == strings.LastIndexByte(text, ':') {
		host, port = text[:i], text[i+1:]
	}
	// RFC 7239 allows an obfuscated port such as _x.
	if len(port) > 5 && port[0] != '_' || strings.Trim(port, "0123456789") != "" && port[0] != '_' {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap().WithZone(""), true
}
