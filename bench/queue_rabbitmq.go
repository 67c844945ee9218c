package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitPrefetch is how many messages a connection holds that it has not acknowledged.
const rabbitPrefetch = 32

// rabbitMQ is an own node of RabbitMQ with a durable queue.
type rabbitMQ struct {
	url   string
	child *Child
	runs  atomic.Int64 // each run has a queue of its own
}

func setupRabbitMQ(ctx context.Context, env *Env) (Runner, error) {
	program, err := findProgram("rabbitmq-server", "apt-get install rabbitmq-server")
	if err != nil {
		return nil, err
	}
	// Debian's is a wrapper that becomes another user; the program itself stands beside it.
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return nil, err
	}
	program = filepath.Join(filepath.Dir(program), "rabbitmq-server")
	epmdPort, err := startEPMD(ctx, env)
	if err != nil {
		return nil, err
	}
	dir, err := env.Folder("rabbitmq")
	if err != nil {
		return nil, err
	}
	child, addr, err := startPeer(ctx, env, "rabbitmq-server", func(port int) *exec.Cmd {
		return rabbitCommand(program, dir, env.Name, port, epmdPort)
	}, func(_ context.Context, addr string) error {
		c, err := amqp.Dial("amqp://guest:guest@" + addr)
		if err != nil {
			return err
		}
		env.addServer(fmt.Sprint("RabbitMQ ", c.Properties["version"]))
		return c.Close()
	})
	if err != nil {
		return nil, err
	}
	child.stopSignal = syscall.SIGTERM // of an interrupt Erlang thinks otherwise
	r := &rabbitMQ{url: "amqp://guest:guest@" + addr, child: child}
	return &queueRunner{queueSystem: r, conns: env.Clients, batch: 1,
		awaitFinished: r.awaitFinished}, nil
}

// startEPMD runs the port mapper of Erlang on a port of its own. The one a node would start by
// itself outlives the node.
func startEPMD(ctx context.Context, env *Env) (port int, err error) {
	program, err := findProgram("epmd", "apt-get install erlang-base")
	if err != nil {
		return 0, err
	}
	_, _, err = startPeer(ctx, env, "epmd", func(free int) *exec.Cmd {
		port = free
		return exec.Command(program, "-address", "127.0.0.1", "-port", strconv.Itoa(free))
	}, reachable)
	return port, err
}

// rabbitCommand is a node with everything of its own in a folder.
func rabbitCommand(program, dir, name string, port, epmdPort int) *exec.Cmd {
	cmd := exec.Command(program, "-noinput")
	dist, _ := freePort() // 0 lets the system choose
	cmd.Env = append(os.Environ(),
		"HOME="+dir, // of the cookie
		"ERL_EPMD_PORT="+strconv.Itoa(epmdPort),
		"RABBITMQ_NODENAME=bench-"+name+"@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT="+strconv.Itoa(port),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(dist),
		"RABBITMQ_MNESIA_BASE="+dir,
		"RABBITMQ_LOG_BASE="+dir,
		"RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "none"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+filepath.Join(dir, "none"),
		"RABBITMQ_CONF_ENV_FILE="+filepath.Join(dir, "none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"),
		"RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
		"RABBITMQ_ALLOW_INPUT=1", // becomes the node, instead of waiting for it
	)
	return cmd
}

func (r *rabbitMQ) Durability() string {
	return "durable queue, persistent messages, publisher confirms; acks are not answered: " +
		"the clock stops when the channels are closed and the queue is empty"
}

func (r *rabbitMQ) Close() error { return r.child.Stop() }

func (r *rabbitMQ) queue() string { return "bench-" + strconv.FormatInt(r.runs.Load(), 10) }

func (r *rabbitMQ) Reset(context.Context) error {
	r.runs.Add(1)
	return r.channel(func(c *amqp.Channel) error {
		_, err := c.QueueDeclare(r.queue(), true, false, false, false, nil)
		return err
	})
}

// channel runs something on a channel of its own.
func (r *rabbitMQ) channel(use func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return err
	}
	defer conn.Close()
	c, err := conn.Channel()
	if err != nil {
		return err
	}
	return use(c)
}

// awaitFinished closes the channels, which the server answers once it has read their
// acknowledgements. It gives jobs without one back to the queue, which must be empty.
func (r *rabbitMQ) awaitFinished(_ context.Context, conns []queueConn) error {
	for _, c := range conns {
		if err := c.(*rabbitConn).channel.Close(); err != nil {
			return err
		}
	}
	return r.channel(func(c *amqp.Channel) error {
		q, err := c.QueueDeclarePassive(r.queue(), true, false, false, false, nil)
		if err != nil {
			return err
		}
		if q.Messages != 0 {
			return fmt.Errorf("%d messages are not acknowledged", q.Messages)
		}
		return nil
	})
}

func (r *rabbitMQ) Dial(ctx context.Context) (queueConn, error) {
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	c := &rabbitConn{conn: conn, queue: r.queue()}
	if err := c.open(); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// open opens a channel whose publishings are confirmed.
func (c *rabbitConn) open() (err error) {
	if c.channel, err = c.conn.Channel(); err != nil {
		return err
	}
	if err := c.channel.Confirm(false); err != nil {
		return err
	}
	return c.channel.Qos(rabbitPrefetch, 0, false)
}

type rabbitConn struct {
	conn       *amqp.Connection
	channel    *amqp.Channel
	queue      string
	deliveries <-chan amqp.Delivery // from the first Work on
}

func (c *rabbitConn) Close() error { return c.conn.Close() }

func (c *rabbitConn) Submit(ctx context.Context, num, _ int) error {
	confirm, err := c.channel.PublishWithDeferredConfirmWithContext(ctx, "", c.queue, false, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: appendPayload(nil, num)})
	if err != nil {
		return err
	}
	if confirmed, err := confirm.WaitContext(ctx); err != nil || !confirmed {
		return fmt.Errorf("a publish was not confirmed: %w", err)
	}
	return nil
}

func (c *rabbitConn) Work(ctx context.Context, finished func(int)) (err error) {
	if c.deliveries == nil {
		c.deliveries, err = c.channel.Consume(c.queue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
	}
	select {
	case d, open := <-c.deliveries:
		if !open {
			return amqp.ErrClosed
		}
		if err := d.Ack(false); err != nil {
			return err
		}
		finished(payloadNum(d.Body))
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
