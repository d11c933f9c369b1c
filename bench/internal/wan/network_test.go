package wan

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

const patience = 30 * time.Second

// newNetwork starts two regions that are 20 ms apart.
func newNetwork(t *testing.T, seed uint64) *Network {
	t.Helper()
	return Start(t, Options{
		Seed: seed, Regions: []string{"a", "b"}, OneWay: func(string, string) time.Duration { return 20 * time.Millisecond },
	})
}

// eventually polls until so returns true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// echo connects from a to a server in b that returns what it receives.
func echo(t *testing.T, n *Network) net.Conn {
	t.Helper()
	listener, err := n.Listen(t.Context(), "b", n.Address("b")+":7000")
	testenv.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	conn, err := n.Dial("a")(t.Context(), "tcp", listener.Addr().String())
	testenv.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// roundTrip sends a byte and receives it again.
func roundTrip(conn net.Conn) (time.Duration, error) {
	began := time.Now()
	if _, err := conn.Write([]byte{1}); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return time.Since(began), err
}

// fastest returns the fastest of some round trips: a busy machine delays most of them.
func fastest(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	best := time.Hour
	for range 10 {
		elapsed, err := roundTrip(conn)
		testenv.NoError(t, err)
		best = min(best, elapsed)
	}
	return best
}

func TestRoundTripTakesBothDelays(t *testing.T) {
	testenv.Long(t)
	n := newNetwork(t, 1)
	conn := echo(t, n)
	const ms = time.Millisecond
	for _, delays := range [][2]time.Duration{{20 * ms, 20 * ms}, {60 * ms, 20 * ms}, {60 * ms, 90 * ms}} {
		n.SetDelay("a", "b", delays[0])
		n.SetDelay("b", "a", delays[1])
		want := delays[0] + delays[1]
		if got := fastest(t, conn); got < want || got > 2*want {
			t.Errorf("round trip takes %v, want %v to %v", got, want, 2*want)
		}
	}
}

// datagrams sends numbered datagrams from a to b and returns the numbers in the order of arrival. Nothing else is sent, so they are the
// packets that the network counts.
func datagrams(t *testing.T, n *Network, count int) (arrived []int) {
	t.Helper()
	var receiver net.PacketConn
	testenv.NoError(t, n.spaces[1].run(func() (err error) {
		receiver, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", n.Address("b")+":7000")
		return err
	}))
	defer func() { _ = receiver.Close() }()
	sender, err := n.Dial("a")(t.Context(), "udp", receiver.LocalAddr().String())
	testenv.NoError(t, err)
	defer func() { _ = sender.Close() }()
	numbers := make(chan int, 2*count)
	go func() { // at once, since the socket has a short queue
		defer close(numbers)
		buffer := make([]byte, 100)
		for {
			size, _, err := receiver.ReadFrom(buffer)
			if err != nil {
				return
			}
			numbers <- int(binary.BigEndian.Uint32(buffer[:size]))
		}
	}()
	before := n.Counts("a", "b")
	for i := range count {
		_, err := sender.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
		testenv.NoError(t, err)
		if i%50 == 0 { // the device has a short queue
			eventually(t, "forwarding", func() bool { return n.Counts("a", "b").Sent > before.Sent+i })
		}
	}
	eventually(t, "forwarding", func() bool { return n.Counts("a", "b").Sent == before.Sent+count })
	after := n.Counts("a", "b")
	expected := count - (after.Lost - before.Lost) - (after.Cut - before.Cut) + after.Duplicated - before.Duplicated
	eventually(t, "arrival", func() bool { return len(numbers) >= expected })
	testenv.NoError(t, receiver.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	for number := range numbers {
		arrived = append(arrived, number)
	}
	if len(arrived) > expected {
		t.Errorf("%d packets arrived, want %d", len(arrived), expected)
	}
	return arrived
}

func TestSeedDeterminesLossAndDuplication(t *testing.T) {
	const count = 1000
	run := func(seed uint64) ([]int, Counts) {
		n := newNetwork(t, seed)
		n.SetLoss("a", "b", 0.2)
		n.SetDuplication("a", "b", 0.1)
		arrived := datagrams(t, n, count)
		if !slices.IsSorted(arrived) {
			t.Error("packets were reordered without jitter")
		}
		return arrived, n.Counts("a", "b")
	}
	first, counts := run(1)
	t.Logf("%+v", counts)
	if counts.Lost < 150 || counts.Lost > 250 || counts.Duplicated < 50 || counts.Duplicated > 110 {
		t.Errorf("%+v of %d packets, want about 200 lost and 80 duplicated", counts, count)
	}
	if again, _ := run(1); !slices.Equal(first, again) {
		t.Error("the same seed lost and duplicated other packets")
	}
	if other, _ := run(2); slices.Equal(first, other) {
		t.Error("another seed lost and duplicated the same packets")
	}
}

func TestJitterReorders(t *testing.T) {
	n := Start(t, Options{
		Seed: 1, Regions: []string{"a", "b"}, OneWay: func(string, string) time.Duration { return 0 }, Jitter: 20 * time.Millisecond,
	})
	arrived := datagrams(t, n, 200)
	if slices.IsSorted(arrived) {
		t.Error("all packets arrived in order")
	}
	slices.Sort(arrived)
	for i, number := range arrived {
		if i != number {
			t.Fatalf("packet %d is missing or doubled", i)
		}
	}
}

func TestCutHasADirection(t *testing.T) {
	testenv.Long(t)
	for _, direction := range [][2]string{{"a", "b"}, {"b", "a"}} {
		t.Run(direction[0]+" to "+direction[1], func(t *testing.T) {
			n := newNetwork(t, 1)
			conn := echo(t, n)
			fastest(t, conn)
			n.Cut(direction[0], direction[1])
			testenv.NoError(t, conn.SetReadDeadline(time.Now().Add(400*time.Millisecond)))
			if elapsed, err := roundTrip(conn); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("cut: round trip of %v: %v", elapsed, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := n.Dial("a")(ctx, "tcp", conn.RemoteAddr().String()); err == nil {
				t.Error("cut: a new connection was made")
			}
			if n.Counts(direction[0], direction[1]).Cut == 0 || n.Counts(direction[1], direction[0]).Cut > 0 {
				t.Errorf("cut %v: %+v and %+v", direction, n.Counts("a", "b"), n.Counts("b", "a"))
			}
			n.Join(direction[0], direction[1])
			testenv.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Fatalf("joined: what was sent while cut did not arrive: %v", err)
			}
			fastest(t, conn)
		})
	}
}

func TestPlaceIsRegion(t *testing.T) {
	n := newNetwork(t, 1)
	for _, region := range []string{"a", "b"} {
		command := n.Place(region).Command("sh", "-c", "echo $$; readlink /proc/self/ns/net")
		text, err := command.Output()
		testenv.NoError(t, err)
		if want := fmt.Sprintf("%d\n%s\n", command.Process.Pid, n.inode(region)); string(text) != want {
			t.Errorf("%s: %q, want %q", region, text, want)
		}
	}
}

// inode returns the name that the kernel has for the namespace of a region: net:[4026531840].
func (n *Network) inode(region string) string {
	name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n.spaces[n.index(region)].net.Fd()))
	return name
}

// users returns the files and threads that keep a namespace.
func users(inode string) (found []string) {
	for _, pattern := range []string{"/proc/[0-9]*/task/*/ns/net", "/proc/[0-9]*/fd/*"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if to, _ := os.Readlink(name); to == inode {
				found = append(found, name)
			}
		}
	}
	return found
}

func TestCloseLeavesNothing(t *testing.T) {
	n := newNetwork(t, 1)
	fastest(t, echo(t, n))
	inode := n.inode("a")
	if len(users(inode)) == 0 {
		t.Fatal("nothing uses a running network")
	}
	n.Close()
	eventually(t, "no users of "+inode, func() bool { return len(users(inode)) == 0 })
}

// TestMain serves TestKillLeavesNothing, too: a process with a network and a program in it.
func TestMain(m *testing.M) {
	if os.Getenv("WAN_TEST_VICTIM") == "" {
		os.Exit(m.Run())
	}
	n, err := start(Options{Regions: []string{"a", "b"}, OneWay: func(string, string) time.Duration { return 0 }})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(n.inode("a"))
	select {}
}

func TestKillLeavesNothing(t *testing.T) {
	require(t)
	self, err := os.Executable()
	testenv.NoError(t, err)
	victim := exec.CommandContext(t.Context(), self)
	victim.Env = append(os.Environ(), "WAN_TEST_VICTIM=1")
	out, err := victim.StdoutPipe()
	testenv.NoError(t, err)
	testenv.NoError(t, victim.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	testenv.NoError(t, err)
	inode := strings.TrimSpace(line)
	if len(users(inode)) == 0 {
		t.Fatalf("nothing uses %s", inode)
	}
	testenv.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	if left := users(inode); len(left) > 0 {
		t.Errorf("still in use: %s by %q", inode, left)
	}
}
