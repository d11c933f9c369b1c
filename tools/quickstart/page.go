package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/console"
)

const (
	redisAddress = "127.0.0.1:6379"
	// pagePatience is the time that a command of a page may take to print what the page shows.
	pagePatience = 10 * time.Second
)

var loopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// follow does what a page says, from top to bottom: it writes the files, runs the commands and compares what they print. Commands that
// end with & run until it returns. A Redis, which the pages require, runs for as long. It returns how long "go install" took.
func follow(ctx context.Context, page, dir string, env []string) (install time.Duration, err error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return 0, err
	}
	blocks := block.FindAllStringSubmatch(string(text), -1)
	addresses := append(calledAddresses(blocks), redisAddress)
	if anyListens(ctx, addresses) {
		return 0, fmt.Errorf("one of %v is in use: stop the process that listens on it", addresses)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	var groups []int // of processes in the background
	defer func() {
		for _, group := range groups {
			_ = syscall.Kill(-group, syscall.SIGTERM) // an error means that nothing runs any more
		}
		for deadline := time.Now().Add(pagePatience); anyListens(ctx, addresses) && time.Now().Before(deadline); { // the next page may need them
			time.Sleep(50 * time.Millisecond)
		}
	}()
	run := func(lines string) error {
		shell := terminal(ctx, dir, env, lines)
		shell.Stdout, shell.Stderr = log, log
		if err := shell.Run(); err != nil {
			return fmt.Errorf("%w:\n%s\n%s", err, lines, logOf(log))
		}
		if strings.Contains(lines+"\n", " &\n") {
			groups = append(groups, shell.Process.Pid)
		}
		return nil
	}
	if err := run("redis-server --bind 127.0.0.1 --save '' &"); err != nil {
		return 0, err
	}
	if err := awaitListening(ctx, redisAddress); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, logOf(log))
	}
	for i, b := range blocks {
		switch kind, lines := b[1], b[2]; kind {
		case "yaml":
			err = writeBlock(dir, lines)
		case "sh":
			start := time.Now()
			if err = run(lines); strings.HasPrefix(lines, "go install ") {
				install += time.Since(start)
			}
			if err == nil && strings.Contains(lines, "headgate serve ") {
				err = awaitListening(ctx, calledAddresses(blocks[i:])...)
			}
		case "console":
			_, differences := console.Follow(lines, pagePatience, func(command string) string {
				out, _ := terminal(ctx, dir, env, command).CombinedOutput() // a denial exits with 1
				return string(out)
			})
			if len(differences) > 0 {
				err = errors.New(strings.Join(differences, "\n"))
			}
		default:
			err = fmt.Errorf("an unexpected block:\n%s", lines)
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", page, err)
		}
	}
	return install, nil
}

// writeBlock writes or appends to the file that the first line of a block names.
func writeBlock(dir, lines string) error {
	title, body, _ := strings.Cut(strings.TrimPrefix(lines, "# "), "\n")
	name, appended := strings.CutSuffix(title, ", appended")
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if appended {
		flags = os.O_WRONLY | os.O_APPEND
	}
	file, err := os.OpenFile(filepath.Join(dir, name), flags, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(body)
	return errors.Join(err, file.Close())
}

// calledAddresses returns the addresses of servers that the commands call.
func calledAddresses(blocks [][]string) (all []string) {
	for _, b := range blocks {
		if b[1] == "console" {
			for _, address := range loopback.FindAllString(b[2], -1) {
				if address != redisAddress {
					all = append(all, address)
				}
			}
		}
	}
	return all
}

func anyListens(ctx context.Context, addresses []string) bool {
	for _, address := range addresses {
		if listens(ctx, address) {
			return true
		}
	}
	return false
}

// awaitListening returns when there is a listener at each address.
func awaitListening(ctx context.Context, addresses ...string) error {
	for _, address := range addresses {
		for deadline := time.Now().Add(pagePatience); !listens(ctx, address); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) || ctx.Err() != nil {
				return fmt.Errorf("no server listens on %s", address)
			}
		}
	}
	return nil
}

// logOf returns what commands have printed so far.
func logOf(log *os.File) string {
	text, _ := os.ReadFile(log.Name()) // as far as it can be read
	return string(text)
}
