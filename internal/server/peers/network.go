// Package peers knows by which address the connections and requests of a peer are counted. It does not know proxies: who is
// behind a peer is for package identity.
package peers

import (
	"net"
	"net/netip"
)

// Network returns the network by which a peer is counted: its address, and in IPv6 the /64 that it is in, all of which one host
// has. It is not valid if remote, an address and port, is not an IP address.
func Network(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	network, _ := addr.Prefix(min(addr.BitLen(), 64)) // no address has fewer bits than that
	return network
}

// Name returns the network by which a peer is counted as logs and answers name it: 192.0.2.1, 2001:db8::/64, or remote without its
// port if that is not an IP address.
func Name(remote string) string {
	switch network := Network(remote); {
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
