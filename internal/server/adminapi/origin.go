package adminapi

import (
	"net"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/netaddr"
)

// checkBrowser rejects what a browser sends for a page of another site. Where no token is needed it also rejects requests for
// any name but this machine's: a page whose name was made to point here would otherwise be of the same site.
func (a *api) checkBrowser(r *http.Request) *problem {
	if err := a.crossOrigin.Check(r); err != nil {
		return newProblem(http.StatusForbidden, "a browser sent this for a page of another site ("+err.Error()+
			"): send it from a program, without Origin and Sec-Fetch-Site")
	}
	if a.Open && !loopback(r.Host) {
		return newProblem(http.StatusForbidden, "the admin API of --dev takes no tokens, and answers on this machine only: "+
			"ask for localhost or 127.0.0.1, not for another name")
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
