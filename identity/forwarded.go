package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// The headers in which proxies say whom they forward for.
const (
	// XForwardedFor is a list of addresses, the nearest proxy's peer last.
	XForwardedFor = "X-Forwarded-For"
	// Forwarded is the same as RFC 7239 has it: for=192.0.2.1;proto=https, for="[2001:db8::1]:4711"
	Forwarded = "Forwarded"
)

// maxHops is how far a request is followed back: longer lists are written by clients.
const maxHops = 64

// proxies knows which peers are believed about whom they forward for.
type proxies struct {
	networks []netip.Prefix
	hops     int
	unix     bool
	header   field
	quoted   bool // the header is Forwarded
	bits     int  // of IPv6 addresses that make one client
}

func newProxies(o Options) (*proxies, error) {
	p := &proxies{hops: o.TrustedHops, unix: o.TrustUnix, bits: o.IPv6Prefix}
	if len(o.TrustedProxies) > 0 && o.TrustedHops > 0 {
		return nil, errors.New("TrustedProxies and TrustedHops are two ways to say the same: give one of them")
	}
	for _, network := range o.TrustedProxies {
		if !network.IsValid() || network.Bits() == 0 {
			return nil, fmt.Errorf("trusted proxies %s would be everybody, and everybody could claim any address: name the "+
				"networks of your proxies, or their number in TrustedHops", network)
		}
		if a := network.Addr(); a.Is4In6() && network.Bits() >= 96 {
			network = netip.PrefixFrom(a.Unmap(), network.Bits()-96)
		}
		p.networks = append(p.networks, network.Masked())
	}
	if p.hops < 0 || p.hops >= maxHops {
		return nil, fmt.Errorf("%d trusted hops are out of bounds: write how many proxies a request passes", p.hops)
	}
	switch o.ForwardedHeader {
	case "", XForwardedFor:
		p.header = newField(XForwardedFor)
	case Forwarded:
		p.header, p.quoted = newField(Forwarded), true
	default:
		return nil, fmt.Errorf("header %q is not one that says whom a proxy forwards for: write %s or %s",
			o.ForwardedHeader, XForwardedFor, Forwarded)
	}
	if p.bits == 0 {
		p.bits = 64
	}
	if p.bits < 1 || p.bits > 128 {
		return nil, fmt.Errorf("an IPv6 prefix of %d bits is out of bounds: write 1 to 128", p.bits)
	}
	return p, nil
}

// trusts says whether the one at a number of hops from here is a proxy; the peer is the first. An address that is not
// valid is that of a peer without one.
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

// client walks from the peer towards the client and stops at the first that is not trusted. An entry that cannot be
// read ends the walk where it is: what is left of it may have been written by anybody.
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

// text is the attribute ip of an address.
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

// cutLast cuts the last entry off a list, at a separator that is not quoted. It reads from the right, so that a quote
// which a client left open, further to the left, cannot swallow what a proxy appended.
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

// escaped says whether what follows the text is behind a backslash that is not itself behind one.
func escaped(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}

// forNode is the node of the only for= in an entry of Forwarded, or "".
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

// unquote takes the quotes off a node. An address needs no escapes, so what has some is not one.
func unquote(value string) string {
	if !strings.HasPrefix(value, `"`) {
		return value
	}
	if len(value) < 2 || !strings.HasSuffix(value, `"`) || strings.ContainsAny(value[1:len(value)-1], `"\`) {
		return ""
	}
	return value[1 : len(value)-1]
}

// parseAddr reads an address with or without brackets and port. An IPv4 address inside an IPv6 one is an IPv4 address;
// zones mean nothing elsewhere and are dropped.
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
	// RFC 7239 lets a proxy hide the port behind a name, _x.
	if len(port) > 5 && port[0] != '_' || strings.Trim(port, "0123456789") != "" && port[0] != '_' {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap().WithZone(""), true
}
