package check

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// Bounds of one request. They are far above what rules look at.
const (
	MaxAttributes = 128
	MaxName       = 256
	MaxValue      = 8 << 10
	MaxBatch      = 1_000
	// BatchWorkers is how many requests of one batch are decided at a time. More would not be decided sooner: they would only
	// keep calls to the store waiting for each other.
	BatchWorkers = 32
)

// Validate says what is wrong with a request that somebody sent, and what to send instead.
func Validate(req headgate.Request) error {
	switch {
	case req.Cost < 0 || req.Cost > headgate.MaxCost:
		return fmt.Errorf("cost is %d: send 1 to %d, or leave it out for 1", req.Cost, headgate.MaxCost)
	case len(req.Rule) > MaxName:
		return fmt.Errorf("rule has %d bytes: no id has more than %d", len(req.Rule), MaxName)
	case len(req.Attributes) > MaxAttributes:
		return fmt.Errorf("there are more than %[1]d attributes: send at most %[1]d", MaxAttributes)
	}
	for name, value := range req.Attributes {
		switch {
		case name == "" || len(name) > MaxName:
			return fmt.Errorf("an attribute's name has %d bytes: send 1 to %d", len(name), MaxName)
		case len(value) > MaxValue:
			return fmt.Errorf("attribute %q has %d bytes: send at most %d", name, len(value), MaxValue)
		}
	}
	return nil
}

// ValidateHold does that for how long to hold a reservation; 0 means the default.
func ValidateHold(hold time.Duration) error {
	if hold < 0 || hold > headgate.MaxHold {
		return fmt.Errorf("a reservation cannot be held for %v: send at most %v, or leave it out for %v",
			hold, headgate.MaxHold, headgate.DefaultHold)
	}
	return nil
}
