package envoy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// Client is a connection that is kept. It does little, to leave the machine to the servers.
type Client struct {
	conn    net.Conn
	answers *bufio.Reader
	request []byte
	// Sent is how often it has asked.
	Sent int
}

// Get asks as a user.
func (c *Client) Get(subject int) error {
	c.request = append(c.request[:0], "GET / HTTP/1.1\r\nHost: example.com\r\nX-User: user-"...)
	c.request = append(strconv.AppendInt(c.request, int64(subject), 10), "\r\n\r\n"...)
	c.Sent++
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
