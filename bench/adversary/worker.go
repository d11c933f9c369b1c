package main

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// worker is a process that uses the library as the README shows, as seen by this process.
type worker struct {
	*testenv.Program
	spec   Spec
	world  *world
	client *rpc.Client
}

// startWorkers starts processes and returns when all are connected to the store.
func (w *world) startWorkers(n int, redis string, deadline time.Duration, g groups) []*worker {
	self, err := os.Executable()
	testenv.NoError(w, err)
	var started []*worker
	for range n {
		k := &worker{world: w, spec: Spec{
			Process: len(w.workers), Redis: redis, Deadline: deadline, Out: filepath.Join(w.TempDir(), "records"),
			Limits: w.header.Limits, Groups: g,
		}}
		command := exec.Command(self, workerFlag) //nolint:noctx // it ends with the scope
		var streams stdio
		streams.WriteCloser, err = command.StdinPipe()
		testenv.NoError(w, err)
		streams.Reader, err = command.StdoutPipe()
		testenv.NoError(w, err)
		k.Program = testenv.Spawn(w, command)
		k.client = rpc.NewClient(streams)
		started, w.workers = append(started, k), append(w.workers, k)
	}
	testenv.NoError(w, together(started, func(_ int, k *worker) error {
		var ok bool
		if err := k.client.Call("Worker.Start", k.spec, &ok); err != nil {
			return fmt.Errorf("worker %d: %w: %s", k.spec.Process, err, k.Output())
		}
		return nil
	}))
	w.header.Nodes = max(w.header.Nodes, n)
	return started
}

// stdio are the standard streams of a process, seen from one side.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// do sends a command and waits for its reply.
func (k *worker) do(c Command) (r Reply, err error) {
	if err = k.client.Call("Worker.Do", c, &r); err != nil {
		err = fmt.Errorf("worker %d: %s: %w", k.spec.Process, c.Op, err)
	}
	return r, err
}

// ended reports whether a command failed because its worker was killed.
func ended(err error) bool {
	var answered rpc.ServerError
	return err != nil && !errors.As(err, &answered)
}

// bulk lets the worker do work that it records itself.
func (k *worker) bulk(c Command) error {
	_, err := k.do(c)
	return err
}

// ask makes one request and records it.
func (k *worker) ask(c Command) error {
	r, err := k.do(c)
	if err == nil {
		k.world.keep(r.Record)
	}
	return err
}

// peek asks what is left until the store answers, and records that.
func (k *worker) peek(group int, subject string) {
	for range 100 {
		r, err := k.do(Command{Op: judge.OpPeek, Group: group, Subject: subject})
		testenv.NoError(k.world, err)
		if r.Record.Path == "store" {
			k.world.keep(r.Record)
			return
		}
		k.world.Sleep(50 * time.Millisecond)
	}
	k.world.Fatalf("worker %d: the store does not answer a peek", k.spec.Process)
}

// quit lets the worker give back what it holds, and ends it.
func (k *worker) quit() {
	_ = k.client.Close() // it may have ended
	select {
	case <-k.Done():
	case <-time.After(5 * time.Second):
		k.Kill()
	}
}

// together runs something for each worker side by side.
func together(workers []*worker, do func(i int, k *worker) error) error {
	var all errgroup.Group
	for i, k := range workers {
		all.Go(func() error { return do(i, k) })
	}
	return all.Wait()
}

// await returns when nodes that were started know of each other, so that they lease as a fleet does.
func (w *world) await() { w.Sleep(2200 * time.Millisecond) }
