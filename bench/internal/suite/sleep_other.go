//go:build !linux

package paired

import "time"

// Sleep is time.Sleep.
func Sleep(d time.Duration) { time.Sleep(d) }
