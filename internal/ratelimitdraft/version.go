// Package ratelimitdraft has the names that the versions of draft-ietf-httpapi-ratelimit-headers give to the parameters of
// RateLimit-Policy and RateLimit, in one table for those who write the fields and those who read them. It knows no limit.
package ratelimitdraft

// Version is one that can be written.
type Version uint8

const (
	// Draft11 is draft-ietf-httpapi-ratelimit-headers-11.
	Draft11 Version = iota
	// DraftNext is what is proposed for the version after it, which is not published: its names may still change.
	DraftNext

	versions
)

// Names are what a version calls its parameters.
type Names struct {
	// Version is its name in configs.
	Version string
	// Quota and Window are of RateLimit-Policy: so many units in so many seconds.
	Quota, Window string
	// Remaining and Reset are of RateLimit: how many units are left, and for how many seconds.
	Remaining, Reset string
}

var names = [versions]Names{
	Draft11:   {Version: "draft-11", Quota: "q", Window: "w", Remaining: "r", Reset: "t"},
	DraftNext: {Version: "draft-next", Quota: "q", Window: "w", Remaining: "a", Reset: "w"},
}

// Names returns what the version calls its parameters. A version that there is not is taken for Draft11.
func (v Version) Names() *Names {
	if v >= versions {
		return &names[Draft11]
	}
	return &names[v]
}

// All returns the names of all versions.
func All() []Names { return names[:] }
