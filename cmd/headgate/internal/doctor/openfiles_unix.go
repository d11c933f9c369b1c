//go:build unix

package doctor

import "syscall"

// openFilesLimit returns how many files this process may open. Go raises the soft limit to the hard one at the start.
func openFilesLimit() (limit uint64, ok bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	return uint64(r.Cur), true //nolint:unconvert // it is signed on FreeBSD
}
