package bench

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

// conn is one keep-alive connection that sends requests which were written before. net/http would
// cost as much processor time as the server that is measured. One goroutine uses it; after an error
// it cannot be used any more, as an answer may be read in part.
type conn struct {
	net net.Conn
	in  *bufio.Reader
}

// dial connects to the target, by TLS for https; trust holds the certificates to trust, nil for
// those of the system. The connection fails all its reads and writes once ctx has ended.
func dial(ctx context.Context, target *url.URL, trust *tls.Config) (*conn, error) {
	address, dial := target.Host, (&net.Dialer{}).DialContext
	if target.Scheme == "https" {
		dial = (&tls.Dialer{Config: trust}).DialContext
	}
	if target.Port() == "" {
		address = net.JoinHostPort(target.Hostname(),
			map[string]string{"http": "80", "https": "443"}[target.Scheme])
	}
	opened, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, cli.WithCode(cli.ExitServer, cli.UnreachableError(err))
	}
	context.AfterFunc(ctx, func() { _ = opened.SetDeadline(time.Unix(1, 0)) })
	return &conn{opened, bufio.NewReaderSize(opened, 64<<10)}, nil
}

// do sends a request and returns the status and the body of its answer. It understands the part of
// HTTP/1.1 that the server uses: a status line and a Content-Length. Chunked answers are an error.
func (c *conn) do(request []byte) (status int, body []byte, err error) {
	if _, err := c.net.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil || len(line) < len("HTTP/1.1 200") {
		return 0, nil, cmp.Or(err, errNotHTTP)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, errNotHTTP
	}
	length, err := c.readHeader()
	if err != nil || length == 0 {
		return status, nil, err
	}
	body = make([]byte, length)
	_, err = io.ReadFull(c.in, body)
	return status, body, err
}

// errNotHTTP is the error of an answer that is not HTTP/1.1.
var errNotHTTP = errors.New("the answer is not HTTP/1.1")

// readHeader reads the header of an answer to its end and returns the Content-Length, 0 where there
// is none. A chunked answer is an error: the server sends none to these requests, a proxy may.
func (c *conn) readHeader() (n int, err error) {
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

// encodeRequest encodes a request as the bytes that go over the connection. A nil body makes a
// request without one.
func encodeRequest(target *url.URL, token, method, path string, body []byte) []byte {
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
