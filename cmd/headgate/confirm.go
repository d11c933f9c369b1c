package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// errNoTerminal is returned if a confirmation is required and standard input is not a terminal, as in scripts.
var errNoTerminal = errors.New("standard input is not a terminal, nothing was changed: review the plan with --dry-run, then pass --yes")

// confirm asks the user on the terminal and reports whether the reply is yes.
func (p *program) confirm(ctx context.Context, question string) (bool, error) {
	if p.in == nil {
		return false, errNoTerminal
	}
	_, _ = io.WriteString(p.log, question+" [y/N] ") // without a visible prompt the reply is not yes
	replies := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.in).ReadString('\n') // an incomplete line does not count as yes
		replies <- line
	}()
	select {
	case <-ctx.Done():
		p.logf("")
		return false, ctx.Err()
	case line := <-replies:
		if line == "" { // end of file, as with /dev/null
			p.logf("")
			return false, errNoTerminal
		}
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes", nil
	}
}

// terminal returns the file if it is a character device, and nil otherwise.
func terminal(file *os.File) *os.File {
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return file
}
