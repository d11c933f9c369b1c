package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// replyError is the unchanged text of an error reply. It starts with the error code.
type replyError string

func (e replyError) Error() string { return string(e) }

// roundTrip sends one command over a new connection. A kept connection would be closed by every failover, and its next command would
// fail for an outdated reason.
func (s *Server) roundTrip(args []string, timeout time.Duration) (any, error) {
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	conn, err := s.place.dial(ctx, s.Addr())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// Leave no TIME_WAIT: polling would accumulate thousands.
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}

	var cmd strings.Builder
	fmt.Fprintf(&cmd, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&cmd, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, cmd.String()); err != nil {
		return nil, err
	}
	reply, err := readReply(bufio.NewReader(conn))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", s.Addr(), args[0], err)
	}
	if failure, ok := reply.(replyError); ok {
		return nil, failure
	}
	return reply, nil
}

// readReply reads one RESP2 value. An error reply is a value here, because it may be inside an array.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return replyError(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reply line %q: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		return string(body[:n]), nil
	case kind == '*':
		items := make([]any, n)
		for i := range items {
			if items[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return nil, fmt.Errorf("reply line %q: unknown kind", line)
}

// fields parses the "name:value" lines of INFO and CLUSTER INFO.
func fields(reply any) map[string]string {
	text, _ := reply.(string)
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// pairs parses a flat array of names and values, the format of Sentinel.
func pairs(reply any) map[string]string {
	items, _ := reply.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(items); i += 2 {
		name, _ := items[i].(string)
		m[name], _ = items[i+1].(string)
	}
	return m
}
