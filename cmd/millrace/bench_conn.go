package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// benchConn is one keep-alive connection that sends ready-made bytes: on a small machine a comfortable client would
// cost as much as the server that is measured.
type benchConn struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialBench(ctx context.Context, target *url.URL) (*benchConn, error) {
	address, dial := target.Host, (&net.Dialer{}).DialContext
	if target.Scheme == "https" {
		dial = (&tls.Dialer{}).DialContext
	}
	if target.Port() == "" {
		address = net.JoinHostPort(target.Hostname(), map[string]string{"http": "80", "https": "443"}[target.Scheme])
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, withCode(exitServer, fmt.Errorf("the server cannot be reached (--server or MILLRACE_SERVER): %w", err))
	}
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &benchConn{conn, bufio.NewReaderSize(conn, 64<<10)}, nil
}

// do sends a whole request and returns the answer.
func (c *benchConn) do(request []byte) (status int, body []byte, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// benchRequest writes a request once, to be sent many times.
func benchRequest(target *url.URL, token, method, path string, body []byte) []byte {
	var b strings.Builder
	b.WriteString(method + " " + strings.TrimRight(target.EscapedPath(), "/") + path + " HTTP/1.1\r\nHost: " + target.Host + "\r\n")
	if token != "" {
		b.WriteString("Authorization: Bearer " + token + "\r\n")
	}
	if body != nil {
		b.WriteString("Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return []byte(b.String())
}
