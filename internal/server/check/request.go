package check

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// Bounds of one request, far above what rules use.
const (
	MaxAttributes = 128
	MaxName       = 256
	MaxValue      = 8 << 10
	MaxBatch      = 1_000
	// BatchWorkers is the number of requests of one batch that are decided concurrently. More workers would not be faster:
	// store calls would only wait for each other.
	BatchWorkers = 32
)

// Validate returns an error if a request is out of bounds, with the remedy.
func Validate(req headgate.Request) error {
	switch {
	case req.Cost < 0 || req.Cost > headgate.MaxCost:
		return fmt.Errorf("cost %d: must be 1 to %d, or omitted for 1", req.Cost, headgate.MaxCost)
	case len(req.Rule) > MaxName:
		return fmt.Errorf("rule: %d bytes: must be at most %d", len(req.Rule), MaxName)
	case len(req.Attributes) > MaxAttributes:
		return fmt.Errorf("attributes: more than %[1]d: send at most %[1]d", MaxAttributes)
	}
	for name, value := range req.Attributes {
		switch {
		case name == "" || len(name) > MaxName:
			return fmt.Errorf("attributes: name of %d bytes: must be 1 to %d", len(name), MaxName)
		case len(value) > MaxValue:
			return fmt.Errorf("attribute %q: %d bytes: must be at most %d", name, len(value), MaxValue)
		}
	}
	return nil
}

// ValidateHold returns an error if a reservation cannot be held that long. 0 means the default.
func ValidateHold(hold time.Duration) error {
	if hold < 0 || hold > headgate.MaxHold {
		return fmt.Errorf("%v: must be 0s to %v, or omitted for %v",
			hold, headgate.MaxHold, headgate.DefaultHold)
	}
	return nil
}
