//go:build !linux

package suite

import "time"

// Sleep is time.Sleep.
func Sleep(d time.Duration) { time.Sleep(d) }
