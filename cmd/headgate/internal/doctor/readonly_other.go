//go:build !linux

package doctor

// readOnly reports whether a file is on a mount that is read-only, which is known only on Linux.
func readOnly(string) bool { return false }
