//go:build !linux

package testenv

import (
	"syscall"
	"time"
)

// dieWithParent has no equivalent here: only the test's cleanup ends a server.
func dieWithParent() *syscall.SysProcAttr { return nil }

func halted(int) bool { return true }

func cpu(int) time.Duration { return 0 }
