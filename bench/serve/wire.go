package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
)

// rules never refuse here: every request reaches Redis.
const rules = `rules:
  - id: one
    match: {path: /one}
    by: [user]
    limit: 1000000/minute
  - id: three
    match: {path: /three}
    by: [user]
    limits: {second: 1000000/second, minute: 2000000/minute, hour: 5000000/hour}
`

// wire compares servers, all of them in front of the same Redis.
func wire(scope *paired.Scope, aims *paired.Aims, rounds int, slice time.Duration) (func(), error) {
	redis := testenv.Start(scope, testenv.Redis)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bare, err := start(scope, exec.CommandContext(scope.Context(), self, "-bare", redis.Addr()), func(line string) string { return line })
	if err != nil {
		return nil, err
	}
	ours, err := startHeadgate(scope, redis.Addr())
	if err != nil {
		return nil, err
	}
	bareConn, err := dial(scope, bare.address)
	if err != nil {
		return nil, err
	}
	ourConn, err := dial(scope, ours.address)
	if err != nil {
		return nil, err
	}
	stream, err := bareStream(bareConn)
	if err != nil {
		return nil, err
	}
	remote, err := client.New(client.Options{Addresses: []string{ours.address}, Timeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	scope.Cleanup(remote.Close)
	variants := []paired.Variant{
		{Name: "a   bare gRPC echo", Callers: callers, Do: bareUnary(bareConn, "Echo"), ServerCPU: bare.cpu},
		{Name: "b   bare gRPC, smallest script", Callers: callers, Do: bareUnary(bareConn, "Check"), ServerCPU: bare.cpu},
		{Name: "c   bare stream, smallest script", Callers: callers, Do: stream, ServerCPU: bare.cpu},
		{Name: "d1  Check, 1 limit", Callers: callers, Do: ourUnary(ourConn, "/one"), ServerCPU: ours.cpu},
		{Name: "d3  Check, 3 limits", Callers: callers, Do: ourUnary(ourConn, "/three"), ServerCPU: ours.cpu},
		{Name: "e1  CheckStream, 1 limit", Callers: callers, Do: ourStream(remote, "/one"), ServerCPU: ours.cpu},
		{Name: "e3  CheckStream, 3 limits", Callers: callers, Do: ourStream(remote, "/three"), ServerCPU: ours.cpu},
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("gRPC, %d callers, %d subjects, %d rounds of %s; medians and quartiles; server is the gRPC server alone\n",
		callers, subjects, rounds, slice)
	paired.Table(variants, s)
	fmt.Printf("decided without Redis: %d\n", undecided.Load())
	by := func(i int) []paired.Sample { return s[variants[i].Name] }
	return func() {
		aims.AtLeast("d1 ÷ b, unary, throughput", paired.Ratio(by(3), by(1), paired.Throughput), 0.85)
		aims.AtLeast("e1 ÷ c, stream, throughput", paired.Ratio(by(5), by(2), paired.Throughput), 0.75)
	}, nil
}

func dial(scope *paired.Scope, address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		scope.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// startHeadgate builds the program that users run and starts it as they do.
func startHeadgate(scope *paired.Scope, redis string) (*process, error) {
	dir := scope.TempDir()
	program := filepath.Join(dir, "headgate")
	build := exec.CommandContext(scope.Context(), "go", "build", "-o", program, "./cmd/headgate")
	build.Dir = ".." // make bench runs in bench/
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	config := fmt.Sprintf("listen: {http: off, grpc: 127.0.0.1:0, ops: 127.0.0.1:0, admin: off}\nredis: {address: \"redis://%s\"}\nrules: rules.yaml\n", redis)
	for name, text := range map[string]string{"rules.yaml": rules, "config.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	serve := exec.CommandContext(scope.Context(), program, "serve", "--config", filepath.Join(dir, "config.yaml"))
	return start(scope, serve, func(line string) string {
		if !strings.Contains(line, "listening") || !strings.Contains(line, "grpc") {
			return ""
		}
		_, rest, _ := strings.Cut(line, `"address":"`)
		address, _, _ := strings.Cut(rest, `"`)
		return address
	})
}

// process is a server.
type process struct {
	cmd     *exec.Cmd
	address string
}

var errSilent = errors.New("the server did not say where it listens")

// start starts a server and finds its address in what it prints.
func start(scope *paired.Scope, cmd *exec.Cmd, find func(line string) string) (*process, error) {
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = write.Close()
	scope.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(read)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if address := find(lines.Text()); address != "" {
			go func() { _, _ = io.Copy(io.Discard, read) }()
			return &process{cmd, address}, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", errSilent, strings.Join(said, "\n"))
}

// cpu is what the process has used so far, to a hundredth of a second; see proc(5).
func (p *process) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may have anything in it
	fields := strings.Fields(rest)
	var hundredths int64
	for _, field := range fields[11:13] {
		n, _ := strconv.ParseInt(field, 10, 64)
		hundredths += n
	}
	return time.Duration(hundredths) * 10 * time.Millisecond
}
