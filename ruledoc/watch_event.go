package ruledoc

import (
	"fmt"
	"log/slog"
	"time"
)

// EventKind is the type of an event of watched rules.
type EventKind uint8

const (
	// Applied means that the files are valid and their rules are active.
	Applied EventKind = iota
	// Recovered means that the files were invalid, are valid again and contain the rules that are already active.
	Recovered
	// Rejected means that the files are invalid or missing; the active rules stay active.
	Rejected
	// StartedFromLastGood means that the files were invalid or missing at the start, and the saved last good rules are active.
	StartedFromLastGood
	// SaveFailed means that the file of the last good rules could not be read or written.
	SaveFailed
)

var eventNames = [...]string{"applied", "recovered", "rejected", "started_from_last_good", "save_failed"}

// String returns the kind's name in logs and metrics, such as "applied".
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is an event of watched rules that an operator should know about. After Applied and Recovered, the active rules are
// those of the files. After Rejected and StartedFromLastGood they are not, until one of the former follows.
type Event struct {
	Kind EventKind
	// Source is the source of the rules if that is not files, such as "PostgreSQL at …".
	Source string
	// Version is the version of the active rules.
	Version string
	// Err is the cause of Rejected, StartedFromLastGood and SaveFailed.
	Err error
	// LastGoodFile and LastGoodTime are, after StartedFromLastGood, the file of the active rules and when they were saved.
	LastGoodFile string
	LastGoodTime time.Time
}

// String describes the event: what happened, which rules are active, and the cause.
func (e Event) String() string {
	if e.Source != "" {
		return e.sourceString()
	}
	switch e.Kind {
	case Applied:
		return fmt.Sprintf("rules applied: version %s is active", e.Version)
	case Recovered:
		return fmt.Sprintf("rule files valid again: version %s stays active", e.Version)
	case Rejected:
		return fmt.Sprintf("rule files rejected: version %s stays active; correct the files: %v", e.Version, e.Err)
	case StartedFromLastGood:
		return fmt.Sprintf("rule files rejected: started with the last good rules, version %s, saved in %s on %s; correct the "+
			"files: %v", e.Version, e.LastGoodFile, e.LastGoodTime.Format(time.RFC3339), e.Err)
	case SaveFailed:
		return fmt.Sprintf("last good file failed: version %s stays active: %v", e.Version, e.Err)
	}
	return e.Kind.String()
}

// sourceString describes an event of rules that do not come from files.
func (e Event) sourceString() string {
	switch e.Kind {
	case Applied:
		return fmt.Sprintf("rules applied: version %s from %s is active", e.Version, e.Source)
	case Recovered:
		return fmt.Sprintf("%s available again: version %s stays active", e.Source, e.Version)
	case Rejected:
		return fmt.Sprintf("rules from %s not applied: version %s stays active: %v", e.Source, e.Version, e.Err)
	case StartedFromLastGood:
		return fmt.Sprintf("rules from %s not loaded: started with the last good rules, version %s, saved in %s on %s: %v", e.Source,
			e.Version, e.LastGoodFile, e.LastGoodTime.Format(time.RFC3339), e.Err)
	default:
		return fmt.Sprintf("last good file failed: version %s from %s stays active: %v", e.Version, e.Source, e.Err)
	}
}

// logEvent logs an event with package slog.
func logEvent(e Event) {
	switch e.Kind {
	case Applied, Recovered:
		slog.Info("rules loaded", "event", e.Kind.String(), "detail", e.String())
	default:
		slog.Error("rules not loaded", "event", e.Kind.String(), "detail", e.String())
	}
}
