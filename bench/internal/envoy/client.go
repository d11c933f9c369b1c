package envoy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// Client is a persistent connection. It uses little CPU, to leave the machine to the servers.
type Client struct {
	conn      net.Conn
	responses *bufio.Reader
	request   []byte
	// Sent is the number of requests sent.
	Sent int
}

// Get sends a request of a user and expects status 200.
func (c *Client) Get(subject int) error {
	c.request = append(c.request[:0], "GET / HTTP/1.1\r\nHost: example.com\r\nX-User: user-"...)
	c.request = append(strconv.AppendInt(c.request, int64(subject), 10), "\r\n\r\n"...)
	c.Sent++
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.responses, nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("unexpected status %s", response.Status)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	return response.Body.Close()
}
