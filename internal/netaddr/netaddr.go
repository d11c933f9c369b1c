// Package netaddr answers questions about network addresses that security decisions in several packages depend on, so that
// they all get the same answer. It resolves no names and opens no connections, and does not know proxies: who is behind a peer
// is for package identity.
package netaddr

import (
	"net"
	"net/netip"
)

// IsLoopback reports whether host, a name or an address without a port, is this machine alone. Of names only localhost is:
// what others resolve to is not known.
func IsLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// PeerNetwork returns the network by which a peer is counted: its address, and in IPv6 the /64 that it is in, all of which one host
// has. It is not valid if remote, an address and port, is not an IP address.
func PeerNetwork(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	network, _ := addr.Prefix(min(addr.BitLen(), 64)) // no address has fewer bits than that
	return network
}

// PeerName returns the network by which a peer is counted as logs and answers name it: 192.0.2.1, 2001:db8::/64, or remote without
// its port if that is not an IP address.
func PeerName(remote string) string {
	switch network := PeerNetwork(remote); {
	case network.IsSingleIP():
		return network.Addr().String()
	case network.IsValid():
		return network.String()
	}
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}
