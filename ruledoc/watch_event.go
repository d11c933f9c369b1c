package ruledoc

import (
	"fmt"
	"log/slog"
	"time"
)

// EventKind says what happened to watched rules.
type EventKind uint8

const (
	// Applied says that the files were good and are in use.
	Applied EventKind = iota
	// Recovered says that files that were bad are good again and say what is already in use.
	Recovered
	// Rejected says that the files are bad or gone; what was in use stays.
	Rejected
	// StartedFromLastGood says that the files were bad or gone at the start and those kept from an earlier time are in use.
	StartedFromLastGood
	// SaveFailed says that the file of the last good rules could not be read or written.
	SaveFailed
)

var eventNames = [...]string{"applied", "recovered", "denied", "started_from_kept", "keep_failed"}

// String is a word for logs and metrics: "applied".
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is something that people should know about watched rules. After Applied and Recovered the rules in use are
// those of the files; after Rejected and StartedFromLastGood they are not, until one of the former follows.
type Event struct {
	Kind EventKind
	// Source is where the rules are from, if not from files: "PostgreSQL at …".
	Source string
	// Version of the rules in use.
	Version string
	// Err is the reason of what went wrong.
	Err error
	// LastGoodFile and LastGoodTime say where the rules in use come from and since when they have been kept, after StartedFromLastGood.
	LastGoodFile string
	LastGoodTime time.Time
}

// String is a sentence for people.
func (e Event) String() string {
	if e.Source != "" {
		return e.elsewhere()
	}
	switch e.Kind {
	case Applied:
		return fmt.Sprintf("rules applied: version %s is in use", e.Version)
	case Recovered:
		return fmt.Sprintf("rule files are good again: they say what is in use, version %s", e.Version)
	case Rejected:
		return fmt.Sprintf("rule files denied: version %s stays in use until they are corrected: %v", e.Version, e.Err)
	case StartedFromLastGood:
		return fmt.Sprintf("rule files denied: started with version %s, kept in %s on %s, which stays in use until they "+
			"are corrected: %v", e.Version, e.LastGoodFile, e.LastGoodTime.Format(time.RFC3339), e.Err)
	case SaveFailed:
		return fmt.Sprintf("version %s is in use, but: %v", e.Version, e.Err)
	}
	return e.Kind.String()
}

// elsewhere is the sentence for rules that are not in files.
func (e Event) elsewhere() string {
	switch e.Kind {
	case Applied:
		return fmt.Sprintf("rules applied: version %s of %s is in use", e.Version, e.Source)
	case Recovered:
		return fmt.Sprintf("%s answers again, and version %s is what it has", e.Source, e.Version)
	case Rejected:
		return fmt.Sprintf("version %s stays in use, whatever %s has: %v", e.Version, e.Source, e.Err)
	case StartedFromLastGood:
		return fmt.Sprintf("started with version %s, kept in %s on %s, without %s: %v", e.Version, e.LastGoodFile,
			e.LastGoodTime.Format(time.RFC3339), e.Source, e.Err)
	default:
		return fmt.Sprintf("version %s of %s is in use, but: %v", e.Version, e.Source, e.Err)
	}
}

func logEvent(e Event) {
	switch e.Kind {
	case Applied, Recovered:
		slog.Info(e.String())
	default:
		slog.Error(e.String())
	}
}
