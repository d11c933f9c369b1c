package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// errNobodyAsked is for scripts: what they want must be said before.
var errNobodyAsked = errors.New("there is no terminal to ask on, and nothing was changed: look at it with --dry-run, then " +
	"give --yes")

// confirm asks whoever sits at the terminal.
func (p *program) confirm(ctx context.Context, question string) (bool, error) {
	if p.in == nil {
		return false, errNobodyAsked
	}
	_, _ = io.WriteString(p.log, question+" [y/N] ") // who does not see it does not answer
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.in).ReadString('\n') // what ends early is no yes
		answers <- line
	}()
	select {
	case <-ctx.Done():
		p.say("")
		return false, ctx.Err()
	case line := <-answers:
		if line == "" { // nobody sits there, as with /dev/null
			p.say("")
			return false, errNobodyAsked
		}
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes", nil
	}
}

// terminal is the file, if somebody sits there.
func terminal(file *os.File) *os.File {
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return file
}
