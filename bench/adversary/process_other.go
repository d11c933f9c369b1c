//go:build !linux

package main

import "syscall"

// dieWithParent has no equivalent here: a worker ends when its standard input does.
func dieWithParent() *syscall.SysProcAttr { return nil }
