package telemetry

import (
	"slices"

	"github.com/headgate/headgate"
)

// call, result and path are indexes of the label values below.
type (
	call   uint8
	result uint8
	path   uint8
)

var (
	calls = [...]headgate.Call{
		headgate.CallCheck, headgate.CallPeek, headgate.CallReserve, headgate.CallCommit, headgate.CallCancel, headgate.CallRefund,
	}
	results = [...]string{allowed: "allowed", denied: "denied", wouldDeny: "would_deny", failed: "error"}
	// The most frequent paths come first. Errors have the empty path.
	paths = [...]headgate.Path{
		headgate.PathLease, headgate.PathStore, headgate.PathCache, headgate.PathNone, headgate.PathExempt, headgate.PathRules,
		headgate.PathLocal, headgate.PathFailed, "",
	}
)

const (
	allowed result = iota
	denied
	wouldDeny
	failed
)

func callOf(c headgate.Call) call { return call(max(0, slices.Index(calls[:], c))) }

func pathOf(p headgate.Path) path {
	if i := slices.Index(paths[:], p); i >= 0 {
		return path(i)
	}
	return path(len(paths) - 1)
}
