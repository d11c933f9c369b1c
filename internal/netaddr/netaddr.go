// Package netaddr classifies network addresses for security decisions in several packages, so that all packages decide alike. It
// resolves no names, opens no connections, and does not know proxies: package identity determines the client behind a peer.
package netaddr

import (
	"net"
	"net/netip"
)

// IsLoopback reports whether host, a name or an address without a port, is a loopback address. The only name that counts is
// localhost, because names are not resolved.
func IsLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// IsReachable reports whether other hosts can reach a listener at an address with a port. It is false if the listener is off.
func IsReachable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !IsLoopback(host)
}

// PeerNetwork returns the network that identifies a peer: its IPv4 address, or its IPv6 /64, because one host usually has all of it.
// The result is invalid if remote, an address and port, is not an IP address.
func PeerNetwork(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	network, _ := addr.Prefix(min(addr.BitLen(), 64)) // cannot fail: the number of bits is valid
	return network
}

// PeerName returns the network that identifies a peer, for logs and responses: 192.0.2.1, 2001:db8::/64, or remote without its port
// if it is not an IP address.
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
