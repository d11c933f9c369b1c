//go:build !linux

package suite

import "time"

// Sleep calls time.Sleep.
func Sleep(d time.Duration) { time.Sleep(d) }
