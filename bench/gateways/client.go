package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/bench/internal/paired"
)

// client is a connection that is kept. It does little, to leave the machine to the servers.
type client struct {
	conn    net.Conn
	answers *bufio.Reader
	request []byte
	sent    int
}

func dial(scope *paired.Scope, address string) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(scope.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	scope.Cleanup(func() { _ = conn.Close() })
	return &client{conn: conn, answers: bufio.NewReader(conn)}, nil
}

// get asks as a user.
func (c *client) get(subject int) error {
	c.request = append(c.request[:0], "GET / HTTP/1.1\r\nHost: example.com\r\nX-User: user-"...)
	c.request = append(strconv.AppendInt(c.request, int64(subject), 10), "\r\n\r\n"...)
	c.sent++
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", answer.Status)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	return answer.Body.Close()
}
