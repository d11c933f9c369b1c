//go:build !linux

package testenv

import "syscall"

// dieWithParent has no equivalent here: only the test's cleanup ends a server.
func dieWithParent() *syscall.SysProcAttr { return nil }
