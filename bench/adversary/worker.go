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

// worker is this process's handle of a Worker process.
type worker struct {
	*testenv.Program
	spec   Spec
	world  *world
	client *rpc.Client
}

// startWorkers starts processes and returns when all are connected to the store. Each group is a rule.
func (w *world) startWorkers(n int, redis string, deadline time.Duration, g groups) []*worker {
	return w.spawn(n, Spec{Redis: redis, Deadline: deadline, Groups: g})
}

// spawn starts processes and returns when all are connected to the store.
func (w *world) spawn(n int, spec Spec) []*worker {
	self, err := os.Executable()
	testenv.NoError(w, err)
	var started []*worker
	for range n {
		spec.Process, spec.Out, spec.Limits = len(w.workers), filepath.Join(w.TempDir(), "records"), w.header.Limits
		k := &worker{world: w, spec: spec}
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
	testenv.NoError(w, forEachWorker(started, func(_ int, k *worker) error {
		var ok bool
		if err := k.client.Call("Worker.Start", k.spec, &ok); err != nil {
			return fmt.Errorf("worker %d: %w: %s", k.spec.Process, err, k.Output())
		}
		return nil
	}))
	w.header.Nodes = max(w.header.Nodes, n)
	return started
}

// stdio joins the standard streams of a process, as seen from one side.
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
	var serverError rpc.ServerError
	return err != nil && !errors.As(err, &serverError)
}

// bulk runs a command whose requests the worker records itself.
func (k *worker) bulk(c Command) error {
	_, err := k.do(c)
	return err
}

// requestAndRecord sends one request and records it.
func (k *worker) requestAndRecord(c Command) error {
	r, err := k.do(c)
	if err == nil {
		k.world.addRecords(r.Record)
	}
	return err
}

// peek peeks at a counter until the store answers, and records that response.
func (k *worker) peek(group int, subject string) {
	for range 100 {
		r, err := k.do(Command{Op: judge.OpPeek, Group: group, Subject: subject})
		testenv.NoError(k.world, err)
		if r.Record.Path == "store" {
			k.world.addRecords(r.Record)
			return
		}
		k.world.Sleep(50 * time.Millisecond)
	}
	k.world.Fatalf("worker %d: no answer from the store to a peek", k.spec.Process)
}

// quit ends the worker, which returns its leases first.
func (k *worker) quit() {
	_ = k.client.Close() // it may have ended
	select {
	case <-k.Done():
	case <-time.After(5 * time.Second):
		k.Kill()
	}
}

// forEachWorker runs do for all workers concurrently.
func forEachWorker(workers []*worker, do func(i int, k *worker) error) error {
	var all errgroup.Group
	for i, k := range workers {
		all.Go(func() error { return do(i, k) })
	}
	return all.Wait()
}

// awaitFleet waits until the nodes have discovered each other, so that they lease as a fleet does.
func (w *world) awaitFleet() { w.Sleep(2200 * time.Millisecond) }
