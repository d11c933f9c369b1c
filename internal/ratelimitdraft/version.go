// Package ratelimitdraft lists the parameter names of RateLimit-Policy and RateLimit in each version of
// draft-ietf-httpapi-ratelimit-headers, in one table for writers and readers of the headers. It does not know limits.
package ratelimitdraft

// Version is a supported version of the draft.
type Version uint8

const (
	// Draft11 is draft-ietf-httpapi-ratelimit-headers-11.
	Draft11 Version = iota
	// DraftNext is the proposal for the version after draft 11. It is unpublished, and its names may still change.
	DraftNext

	versions
)

// Names is the set of parameter names of one version.
type Names struct {
	// Version is the name of the version in configs.
	Version string
	// Quota, Unit and Window are the parameters of RateLimit-Policy: Quota units per Window seconds. The default Unit is a request.
	Quota, Unit, Window string
	// Remaining and Reset are the parameters of RateLimit: the units left, and the seconds until the reset.
	Remaining, Reset string
}

// ConcurrentRequests is the Unit of a limit on requests in flight. Such a policy has no window.
const ConcurrentRequests = "concurrent-requests"

var names = [versions]Names{
	Draft11:   {Version: "draft-11", Quota: "q", Unit: "qu", Window: "w", Remaining: "r", Reset: "t"},
	DraftNext: {Version: "draft-next", Quota: "q", Unit: "qu", Window: "w", Remaining: "a", Reset: "w"},
}

// Names returns the parameter names of the version. An unknown version is treated as Draft11.
func (v Version) Names() *Names {
	if v >= versions {
		return &names[Draft11]
	}
	return &names[v]
}

// All returns the names of all versions.
func All() []Names { return names[:] }
