package testenv

import (
	"runtime/debug"
	"slices"
)

// Race reports whether the race detector is enabled. Tests then take at least ten times as long.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
