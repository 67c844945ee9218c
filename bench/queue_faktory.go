package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// envFaktory names the variable with Faktory's program, for one that is not in PATH.
const envFaktory = "MILLRACE_BENCH_FAKTORY"

// faktory is a Faktory server with the Redis it starts itself.
type faktory struct {
	addr  string
	child *Child
}

func setupFaktory(ctx context.Context, env *Env) (Runner, error) {
	program, err := findProgram(cmp.Or(os.Getenv(envFaktory), "faktory"), "build it from "+
		"github.com/contribsys/faktory (go build ./cmd/faktory) and name it in "+envFaktory)
	if err != nil {
		return nil, err
	}
	_, err = findProgram("redis-server", "Faktory needs it; apt-get install redis-server")
	if err != nil {
		return nil, err
	}
	// The path of its Redis socket must be short, and nothing of a home directory is read.
	dir, err := env.Folder("fk")
	if err != nil {
		return nil, err
	}
	web, err := freePort()
	if err != nil {
		return nil, err
	}
	child, addr, err := startPeer(ctx, env, "faktory", func(port int) *exec.Cmd {
		return exec.Command(program, "-b", fmt.Sprintf("127.0.0.1:%d", port), "-w",
			fmt.Sprintf("127.0.0.1:%d", web), "-d", dir, "-c", dir, "-l", "error")
	}, func(ctx context.Context, addr string) error {
		c, err := dialFaktory(ctx, addr)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		return nil, err
	}
	f := &faktory{addr: addr, child: child}
	if err := f.describe(ctx, env); err != nil {
		return nil, err
	}
	return &queueRunner{queueSystem: f, conns: env.Clients, batch: 1}, nil
}

// describe asks the server for its version.
func (f *faktory) describe(ctx context.Context, env *Env) error {
	c, err := dialFaktory(ctx, f.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.reply("INFO")
	if err != nil {
		return err
	}
	env.addServer("Faktory " + member(info, "faktory_version"))
	return nil
}

func (f *faktory) Durability() string {
	return "NOT durable at acknowledgement: Redis with snapshots, as Faktory configures it"
}

func (f *faktory) Close() error { return f.child.Stop() }

// Reset removes all jobs.
func (f *faktory) Reset(ctx context.Context) error {
	c, err := dialFaktory(ctx, f.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.expect("FLUSH\r\n", "+OK")
}

func (f *faktory) Dial(ctx context.Context) (queueConn, error) { return dialFaktory(ctx, f.addr) }

// faktoryConn is a worker of its own, which may submit jobs as well.
type faktoryConn struct {
	*lineConn
	worker    string
	heartbeat time.Time
}

// faktoryHeartbeat is how often a worker says that it is alive; the server allows 60 s.
const faktoryHeartbeat = 10 * time.Second

func dialFaktory(ctx context.Context, addr string) (*faktoryConn, error) {
	l, err := dialLines(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &faktoryConn{lineConn: l, worker: l.conn.LocalAddr().String(), heartbeat: time.Now()}
	if err := c.greet(); err != nil {
		l.Close()
		return nil, err
	}
	return c, nil
}

// greet waits for the greeting of the server and answers it.
func (c *faktoryConn) greet() error {
	hi, err := c.line()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(hi, "+HI ") {
		return fmt.Errorf("the server greeted with %q", hi)
	}
	hello := `HELLO {"wid":"%s","hostname":"bench","pid":%d,"labels":[],"v":2}` + "\r\n"
	return c.expect(fmt.Sprintf(hello, c.worker, os.Getpid()), "+OK")
}

func (c *faktoryConn) Submit(_ context.Context, num, _ int) error {
	return c.expect(fmt.Sprintf(
		`PUSH {"jid":"bench-%08d","jobtype":"bench","queue":"default","args":[%s]}`+"\r\n", num,
		appendPayload(nil, num)), "+OK")
}

// Work claims a job, for which the server waits two seconds when there is none.
func (c *faktoryConn) Work(_ context.Context, finished func(int)) error {
	if time.Since(c.heartbeat) > faktoryHeartbeat {
		c.heartbeat = time.Now()
		if err := c.expect(fmt.Sprintf(`BEAT {"wid":"%s"}`+"\r\n", c.worker), "+"); err != nil {
			return err
		}
	}
	body, err := c.reply("FETCH default")
	if err != nil || body == nil {
		return err
	}
	var claimed struct {
		ID   string `json:"jid"`
		Args []Job  `json:"args"`
	}
	if err := json.Unmarshal(body, &claimed); err != nil || len(claimed.Args) != 1 {
		return fmt.Errorf("a job of %.100q: %w", body, err)
	}
	if err := c.expect(fmt.Sprintf(`ACK {"jid":"%s"}`+"\r\n", claimed.ID), "+OK"); err != nil {
		return err
	}
	finished(claimed.Args[0].Num)
	return nil
}

// reply sends a command whose reply is a block, nil for none.
func (c *faktoryConn) reply(command string) ([]byte, error) {
	line, err := c.send(command + "\r\n")
	if err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(strings.TrimPrefix(line, "$"))
	if err != nil || line[0] != '$' {
		return nil, fmt.Errorf("%s was answered %q", command, line)
	}
	if size < 0 {
		return nil, nil
	}
	return c.block(size)
}
