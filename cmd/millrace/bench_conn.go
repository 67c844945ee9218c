package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// benchConn is one keep-alive connection that sends ready-made bytes: on a small machine a
// comfortable client would cost as much as the server that is measured.
type benchConn struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialBench(ctx context.Context, target *url.URL, trust *tls.Config) (*benchConn, error) {
	address, dial := target.Host, (&net.Dialer{}).DialContext
	if target.Scheme == "https" {
		dial = (&tls.Dialer{Config: trust}).DialContext
	}
	if target.Port() == "" {
		address = net.JoinHostPort(target.Hostname(),
			map[string]string{"http": "80", "https": "443"}[target.Scheme])
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, cli.WithCode(cli.ExitServer, cli.UnreachableError(err))
	}
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &benchConn{conn, bufio.NewReaderSize(conn, 64<<10)}, nil
}

// request sends a whole request and returns the answer. It reads what the server
// under test sends, a status and a length, and nothing more of HTTP.
func (c *benchConn) do(request []byte) (status int, body []byte, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil || len(line) < len("HTTP/1.1 200") {
		return 0, nil, cmp.Or(err, errNotHTTP)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, errNotHTTP
	}
	length, err := c.length()
	if err != nil || length == 0 {
		return status, nil, err
	}
	body = make([]byte, length)
	_, err = io.ReadFull(c.in, body)
	return status, body, err
}

var errNotHTTP = errors.New("what answers speaks no HTTP/1.1")

// length reads the head of an answer to its end.
func (c *benchConn) length() (n int, err error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, found := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(": "))
		switch {
		case len(name) == 0:
			return n, nil
		case found && bytes.EqualFold(name, []byte("Content-Length")):
			if n, err = strconv.Atoi(string(value)); err != nil {
				return 0, errNotHTTP
			}
		case found && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return 0, errors.New("the answer is chunked: is there a proxy between?")
		}
	}
}

// benchRequest writes a request once, to be sent many times.
func benchRequest(target *url.URL, token, method, path string, body []byte) []byte {
	var b strings.Builder
	b.WriteString(method + " " + strings.TrimRight(target.EscapedPath(), "/") + path +
		" HTTP/1.1\r\nHost: " + target.Host + "\r\n")
	if token != "" {
		b.WriteString("Authorization: Bearer " + token + "\r\n")
	}
	if body != nil {
		b.WriteString("Content-Type: application/json\r\nContent-Length: " +
			strconv.Itoa(len(body)) + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return []byte(b.String())
}
