// Package netaddr answers questions about network addresses that security decisions in several packages depend on, so that
// they all get the same answer. It resolves no names and opens no connections.
package netaddr

import "net/netip"

// IsLoopback reports whether host, a name or an address without a port, is this machine alone. Of names only localhost is:
// what others resolve to is not known.
func IsLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
