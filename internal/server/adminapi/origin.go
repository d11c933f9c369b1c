package adminapi

import (
	"net"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/netaddr"
)

// checkBrowser rejects requests that a browser sends for a page of another site. If no token is required, it also rejects requests
// for a host name other than this machine's. Otherwise a page whose name resolves to this machine (DNS rebinding) would count as the
// same site.
func (a *api) checkBrowser(r *http.Request) *problem {
	if err := a.crossOrigin.Check(r); err != nil {
		return newProblem(http.StatusForbidden, "cross-origin request from a browser ("+err.Error()+
			"): send it from a program, without Origin and Sec-Fetch-Site")
	}
	if a.Open && !loopback(r.Host) {
		return newProblem(http.StatusForbidden, "the admin API of --dev requires no tokens, and serves this machine only: "+
			"use localhost or 127.0.0.1 as the host")
	}
	return nil
}

// loopback reports whether a Host header names this machine.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return strings.HasSuffix(host, ".localhost") || netaddr.IsLoopback(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}
