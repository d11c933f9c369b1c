package explain

import (
	"cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
)

// Home is the region that counts a subject for all regions.
type Home struct {
	Name string `json:"name"`
	Own  bool   `json:"own"`
	// Problem is why another region did not decide: "does not respond: connection refused". It is empty if it did.
	Problem string `json:"problem,omitempty"`
}

// String returns "home us".
func (h *Home) String() string {
	if h.Own {
		return "home " + h.Name + " (this region)"
	}
	return "home " + h.Name
}

// homeNote returns a note on a home that did not decide, or "".
func homeNote(l *Limit) string {
	if l.Home == nil || l.Home.Problem == "" {
		return ""
	}
	return l.Rule + ": " + l.Home.Failure(l.CountedBy)
}

// Failure returns that the home of a subject did not decide: "region us, the home of user=ann, does not respond: connection refused".
func (h *Home) Failure(subject headgate.Attributes) string {
	return "region " + h.Name + ", the home of " + cmp.Or(wording.Attributes(subject), "all requests") + ", " + h.Problem
}

// homeElsewhere returns the name of the other region that counts the limit, or "" if this one does.
func (l *Limit) homeElsewhere() string {
	if l.Home == nil || l.Home.Own {
		return ""
	}
	return l.Home.Name
}
