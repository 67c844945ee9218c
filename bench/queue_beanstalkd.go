package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// beanstalkd is a server with a log that is synced at each write.
type beanstalkd struct {
	addr  string
	child *Child
	tube  atomic.Int64 // each run has its own
}

func setupBeanstalkd(ctx context.Context, env *Env) (Runner, error) {
	program, err := findProgram("beanstalkd", "apt-get install beanstalkd")
	if err != nil {
		return nil, err
	}
	dir, err := env.Folder("beanstalkd")
	if err != nil {
		return nil, err
	}
	child, addr, err := startPeer(ctx, env, "beanstalkd", func(port int) *exec.Cmd {
		return exec.Command(program, "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-b", dir,
			"-f", "0")
	}, reachable)
	if err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, program, "-v").Output()
	if err != nil {
		return nil, err
	}
	env.addServer(singleLine(string(version)) + " -f 0")
	return &queueRunner{queueSystem: &beanstalkd{addr: addr, child: child}, conns: env.Clients,
		batch: 1}, nil
}

// reachable reports whether something listens at an address.
func reachable(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (b *beanstalkd) Durability() string { return "durable: fsync of the binlog at each write" }

func (b *beanstalkd) Reset(context.Context) error {
	b.tube.Add(1)
	return nil
}

func (b *beanstalkd) Close() error { return b.child.Stop() }

func (b *beanstalkd) Dial(ctx context.Context) (queueConn, error) {
	l, err := dialLines(ctx, b.addr)
	if err != nil {
		return nil, err
	}
	tube := "bench-" + strconv.FormatInt(b.tube.Load(), 10)
	for _, command := range []string{"use " + tube, "watch " + tube, "ignore default"} {
		if _, err := l.send(command + "\r\n"); err != nil {
			l.Close()
			return nil, err
		}
	}
	return &beanstalkConn{l}, nil
}

type beanstalkConn struct{ *lineConn }

func (c *beanstalkConn) Submit(_ context.Context, num, _ int) error {
	payload := appendPayload(nil, num)
	return c.expect(fmt.Sprintf("put 0 0 600 %d\r\n%s\r\n", len(payload), payload), "INSERTED ")
}

func (c *beanstalkConn) Work(_ context.Context, finished func(int)) error {
	line, err := c.send("reserve-with-timeout 0\r\n")
	if err != nil || line == "TIMED_OUT" {
		return err
	}
	var id uint64
	var size int
	if _, err := fmt.Sscanf(line, "RESERVED %d %d", &id, &size); err != nil {
		return fmt.Errorf("a reserve was answered %q", line)
	}
	payload, err := c.block(size)
	if err != nil {
		return err
	}
	if err := c.expect(fmt.Sprintf("delete %d\r\n", id), "DELETED"); err != nil {
		return err
	}
	finished(payloadNum(payload))
	return nil
}

// lineConn speaks protocols of lines and of blocks with a length, as beanstalkd and Faktory have
// them.
type lineConn struct {
	conn net.Conn
	in   *bufio.Reader
}

// dialLines connects; operations fail when ctx ends.
func dialLines(ctx context.Context, addr string) (*lineConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &lineConn{conn: conn, in: bufio.NewReader(conn)}, nil
}

func (l *lineConn) Close() error { return l.conn.Close() }

// line reads one line, without its end.
func (l *lineConn) line() (string, error) {
	line, err := l.in.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// send sends a command and answers the first line of its reply.
func (l *lineConn) send(command string) (string, error) {
	if _, err := io.WriteString(l.conn, command); err != nil {
		return "", err
	}
	return l.line()
}

// expect sends a command whose reply must begin with want.
func (l *lineConn) expect(command, want string) error {
	line, err := l.send(command)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, want) {
		return fmt.Errorf("%q was answered %q, not %q", firstLine(command), line, want)
	}
	return nil
}

// block reads so many bytes and the end of line behind them.
func (l *lineConn) block(size int) ([]byte, error) {
	block := make([]byte, size+2)
	_, err := io.ReadFull(l.in, block)
	return block[:size], err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\r\n")
	return line
}
