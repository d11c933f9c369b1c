package doctor

import "syscall"

// readOnly reports whether a file is on a mount that is read-only.
func readOnly(file string) bool {
	const flag = 1 // ST_RDONLY
	var s syscall.Statfs_t
	return syscall.Statfs(file, &s) == nil && s.Flags&flag != 0
}
