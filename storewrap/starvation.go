package storewrap

import (
	"os"
	"runtime"
	"time"
)

const (
	// behindAfter is how late this process may notice what it can read and still count as keeping up.
	behindAfter = 500 * time.Microsecond
	// maxGrace is how many deadlines a process that does not keep up waits at most for answers it may have received.
	maxGrace = 4
	// behindFor is how long such a process may be without any answer until that counts as a failure of the store.
	behindFor = time.Second
)

// lag returns how far this process is behind now: how long it takes to notice that there is something to read, which is the way
// of every answer, and by how much it oversleeps. Where all threads are busy or the machine is, that is up to some ten milliseconds.
func lag() time.Duration {
	r, w, err := os.Pipe()
	if err != nil {
		return 0
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	began := time.Now()
	noticed := make(chan struct{})
	go func() {
		defer close(noticed)
		_, _ = r.Read(make([]byte, 1))
	}()
	runtime.Gosched() // it waits to read before there is anything
	_, _ = w.Write([]byte{0})
	<-noticed
	took := time.Since(began)
	began = time.Now()
	time.Sleep(behindAfter)
	return max(took, time.Since(began)-behindAfter)
}
