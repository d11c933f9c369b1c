package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestThreadEnds tests that a server survives the thread of the goroutine that started it.
func TestThreadEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t, Redis, dataArgs(nil))
	started := make(chan error)
	var thread int
	var start func()
	start = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if thread = syscall.Gettid(); thread == os.Getpid() {
			go start() // the main thread never ends, so use another one
			return
		}
		started <- onFreePort(s.start)
	}
	go start()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	wait(t, "end of the thread", func() error {
		if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(thread)); err == nil {
			return errors.New("still exists")
		}
		return nil
	})
	s.Must(t, "PING")
}

const orphanEnv = "TESTENV_ORPHAN"

// TestParentKilled tests that a server does not survive the test program, even if that is killed. It runs this test program again.
func TestParentKilled(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		fmt.Println("pid", Start(t, Redis).PID())
		select {}
	}
	t.Parallel()
	Redis.binary(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self, "-test.run=^TestParentKilled$")
	parent.Env = append(os.Environ(), orphanEnv+"=1")
	parent.SysProcAttr = dieWithParent()
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // so that the parent thread does not end early
	defer runtime.UnlockOSThread()
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, _ = strconv.Atoi(text)
		}
	}
	parent.Process.Kill()
	parent.Wait()
	if pid == 0 {
		t.Fatal("the test program printed no pid")
	}
	wait(t, "end of the server", func() error {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err == nil && !strings.Contains(string(stat), ") Z ") { // a zombie has ended
			return errors.New("still exists")
		}
		return nil
	})
}
