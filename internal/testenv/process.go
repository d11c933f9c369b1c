package testenv

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child; done is closed once it has been reaped.
type process struct {
	os   *os.Process
	done chan struct{}
}

// spawn starts a child that dies with this process, even if this process is
// killed and no cleanup runs. Linux ties that to the thread that forked, and Go
// ends threads as it likes, so one goroutine keeps its thread for the child's
// whole life.
func spawn(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // its error says "killed", which is how they all end
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return &process{os: cmd.Process, done: done}, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill works on a paused process too, and does not wake it: what clients had
// sent to it stays undone.
func (p *process) kill() {
	p.os.Kill()
	<-p.done
}

func (p *process) pause() {
	p.os.Signal(syscall.SIGSTOP)
	for p.running() && !halted(p.os.Pid) {
		time.Sleep(time.Millisecond)
	}
}

func (p *process) resume() { p.os.Signal(syscall.SIGCONT) }
