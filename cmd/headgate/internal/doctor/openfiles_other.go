//go:build !unix

package doctor

// openFilesLimit reports that there is no such limit.
func openFilesLimit() (limit uint64, ok bool) { return 0, false }
