package testenv

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
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

// cpu adds up utime and stime, which proc(5) counts in hundredths of a second.
func cpu(pid int) time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, found := bytes.Cut(stat, []byte(") "))
	if !found {
		return 0
	}
	var hundredths int64
	for _, field := range bytes.Fields(rest)[11:13] {
		n, _ := strconv.ParseInt(string(field), 10, 64)
		hundredths += n
	}
	return time.Duration(hundredths) * 10 * time.Millisecond
}
