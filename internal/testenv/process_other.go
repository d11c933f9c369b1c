//go:build !linux

package testenv

import "syscall"

// dieWithParent returns nil, because only Linux can kill a child with its parent. Here only the test's cleanup ends a server.
func dieWithParent() *syscall.SysProcAttr { return nil }
