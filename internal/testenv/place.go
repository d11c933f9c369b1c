package testenv

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"testing"
)

// Place is a network that programs run on: another network namespace, or this machine's own network, which is the zero value.
type Place struct {
	// Prefix is the beginning of a command line that runs a program there, with the process id of the command.
	Prefix []string
	// Dial connects from there to an address, which is an IP address and a port.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Command returns a command that runs a program there.
func (p *Place) Command(name string, args ...string) *exec.Cmd {
	line := slices.Concat(p.Prefix, []string{name}, args)
	return exec.Command(line[0], line[1:]...)
}

// Run starts a server with Spawn and returns when it listens at an address there.
func (p *Place) Run(t testing.TB, command *exec.Cmd, address string) *Program {
	t.Helper()
	program := Spawn(t, command)
	err := program.await(func() error {
		conn, err := p.dial(context.Background(), address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v\n%.10000s", command, err, program.Output())
	}
	return program
}

func (p *Place) dial(ctx context.Context, address string) (net.Conn, error) {
	if p.Dial == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return p.Dial(ctx, "tcp", address)
}
