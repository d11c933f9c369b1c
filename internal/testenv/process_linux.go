package testenv

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// halted says whether a SIGSTOP has taken effect: the state is the first field
// after the program's name, which stands in parentheses.
func halted(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, found := bytes.Cut(stat, []byte(") "))
	return found && state[0] == 'T'
}
