package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// rawConn is the cheapest HTTP/1.1 client that still reads answers properly: the request is
// ready-made bytes, the answer is parsed for its status and its length. It exists so that a case on
// a small machine measures the server and not net/http's client, which costs about as much as the
// server.
type rawConn struct {
	conn net.Conn
	in   *bufio.Reader
}

// dialRaw connects; operations on the connection end with the deadline of ctx.
func dialRaw(ctx context.Context, addr string) (*rawConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &rawConn{conn: conn, in: bufio.NewReader(conn)}, nil
}

// bind makes the connection fail when ctx ends. The answer undoes it.
func (c *rawConn) bind(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
}

// Do sends one whole request and answers the status and the body. The body is nil when there is
// none.
func (c *rawConn) Do(request []byte) (status int, body []byte, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, nil, fmt.Errorf("not a status line: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, fmt.Errorf("not a status line: %q", line)
	}
	length, err := c.headers()
	if err != nil || length == 0 {
		return status, nil, err
	}
	body = make([]byte, length)
	_, err = io.ReadFull(c.in, body)
	return status, body, err
}

// headers skips to the end of the head and answers the length of the body.
func (c *rawConn) headers() (length int, err error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return 0, errors.New("a chunked answer: the raw client needs Content-Length")
		}
	}
}

func (c *rawConn) Close() error { return c.conn.Close() }

// Expect is Do for one wanted status; any other is an error.
func (c *rawConn) Expect(request []byte, want int) ([]byte, error) {
	status, body, err := c.Do(request)
	if err != nil {
		return body, err
	}
	if status != want {
		return body, fmt.Errorf("status %d instead of %d: %.200s", status, want, body)
	}
	return body, nil
}

// dialMany opens so many connections, which fail when ctx ends.
func dialMany(ctx context.Context, addr string, n int) (conns []*rawConn, closeAll func(),
	err error) {
	closeAll = func() {
		for _, c := range conns {
			c.Close()
		}
	}
	for range n {
		c, err := dialRaw(ctx, addr)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		c.bind(ctx) // undone with ctx: a deadline on a closed connection does nothing
		conns = append(conns, c)
	}
	return conns, closeAll, nil
}

// sendMany keeps so many connections busy until n requests are answered with the wanted status.
// Request i is what build answers. The connections are made outside the clock.
func sendMany(ctx context.Context, addr string, conns, n, want int,
	build func(i int) []byte) (Phase, error) {
	open, closeAll, err := dialMany(ctx, addr, min(conns, n))
	if err != nil {
		return Phase{}, err
	}
	defer closeAll()
	started := time.Now()
	latency, err := runParallel(ctx, len(open), n, func(_ context.Context, g, i int) error {
		_, err := open[g].Expect(build(i), want)
		return err
	})
	return Phase{Name: phaseRequest, Jobs: n, Took: time.Since(started), Latency: latency}, err
}

// member reads a text member of a small JSON object, without unescaping.
func member(body []byte, name string) string {
	text, _, _ := strings.Cut(textAfter(string(body), `"`+name+`":"`), `"`)
	return text
}
