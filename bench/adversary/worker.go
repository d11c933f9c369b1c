package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// worker is a process that uses the library as the README shows, as seen by this process.
type worker struct {
	spec  spec
	world *world
	cmd   *exec.Cmd
	gone  chan struct{}
	in    io.WriteCloser

	mu      sync.Mutex
	next    int
	pending map[int]chan reply
	ended   bool
}

var errWorkerEnded = errors.New("the worker has ended")

// startWorkers starts processes side by side and returns when all are connected to the store.
func (w *world) startWorkers(n int, redis string, deadline time.Duration, g groups) ([]*worker, error) {
	started, errs := make([]*worker, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		s := spec{
			Process: len(w.workers) + i, Redis: redis, Deadline: deadline, Out: filepath.Join(w.scope.TempDir(), "records"),
			Limits: w.header.Limits, Groups: g, Strict: w.options.strict,
		}
		all.Go(func() { started[i], errs[i] = w.startWorker(s) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	w.workers = append(w.workers, started...)
	w.header.Nodes = max(w.header.Nodes, n)
	return started, nil
}

func (w *world) startWorker(s spec) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	k := &worker{spec: s, world: w, gone: make(chan struct{}), pending: map[int]chan reply{}}
	k.cmd = exec.Command(self, workerFlag) //nolint:noctx // it ends with the scope
	k.cmd.SysProcAttr = dieWithParent()
	log, err := os.Create(s.Out + ".log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the worker has its own
	k.cmd.Stderr = log
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := k.spawn(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.scope.Cleanup(k.kill)
	w.mu.Unlock()
	if err := json.NewEncoder(k.in).Encode(s); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() || lines.Text() != workerReady {
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("worker %d: %q %s", s.Process, lines.Text(), text)
	}
	go k.listen(lines)
	return k, nil
}

// spawn starts the process from a thread that lives as long as it: Linux kills the process when that thread ends.
func (k *worker) spawn() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(k.gone)
		err := k.cmd.Start()
		started <- err
		if err == nil {
			_, _ = k.cmd.Process.Wait() // killed or not, it has ended
		}
	}()
	return <-started
}

// listen hands on replies until the process ends.
func (k *worker) listen(lines *bufio.Scanner) {
	for lines.Scan() {
		var r reply
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		k.mu.Lock()
		answer := k.pending[r.ID]
		delete(k.pending, r.ID)
		k.mu.Unlock()
		if answer != nil {
			answer <- r
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	for _, answer := range k.pending {
		close(answer)
	}
	clear(k.pending)
}

// do sends a command and waits for its reply.
func (k *worker) do(c command) (reply, error) {
	answer := make(chan reply, 1)
	k.mu.Lock()
	if k.ended {
		k.mu.Unlock()
		return reply{}, errWorkerEnded
	}
	k.next++
	c.ID = k.next
	k.pending[c.ID] = answer
	line, err := json.Marshal(c)
	if err == nil {
		_, err = k.in.Write(append(line, '\n'))
	}
	k.mu.Unlock()
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errWorkerEnded, err)
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return reply{}, errWorkerEnded
		case r.Error != "":
			return r, fmt.Errorf("worker %d: %s: %s", k.spec.Process, c.Op, r.Error)
		}
		return r, nil
	case <-k.world.ctx.Done():
		return reply{}, k.world.ctx.Err()
	}
}

// bulk lets the worker do work that it records itself.
func (k *worker) bulk(c command) error {
	_, err := k.do(c)
	return err
}

// ask makes one request and records it.
func (k *worker) ask(c command) error {
	r, err := k.do(c)
	if err == nil {
		k.world.keep(r.Record)
	}
	return err
}

// peek asks what is left until the store answers, and records that.
func (k *worker) peek(group int, subject string) error {
	for range 100 {
		r, err := k.do(command{Op: judge.OpPeek, Group: group, Subject: subject})
		if err != nil {
			return err
		}
		if r.Record.Path == "store" {
			k.world.keep(r.Record)
			return nil
		}
		k.world.sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("worker %d: the store does not answer a peek", k.spec.Process)
}

// quit lets the worker give back what it holds, and ends it.
func (k *worker) quit() {
	_ = k.in.Close() // it may have ended
	select {
	case <-k.gone:
	case <-time.After(5 * time.Second):
		k.kill()
	}
}

// kill ends the worker with SIGKILL.
func (k *worker) kill() {
	_ = k.cmd.Process.Kill() // it may have ended
	<-k.gone
}

// signal sends SIGSTOP or SIGCONT.
func (k *worker) signal(s syscall.Signal) { _ = k.cmd.Process.Signal(s) }

// together runs something for each worker side by side.
func together(workers []*worker, do func(i int, k *worker) error) error {
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, k := range workers {
		all.Go(func() { errs[i] = do(i, k) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// await returns when nodes that were started know of each other, so that they lease as a fleet does.
func (w *world) await() { w.sleep(2200 * time.Millisecond) }
