package testenv

import (
	"runtime/debug"
	"slices"
)

// Race reports whether the race detector is on, with which all takes ten times
// as long and more.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
