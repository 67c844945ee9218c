package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The stream of the bench, with the one consumer that all connections share.
const (
	natsStream   = "bench"
	natsSubject  = "bench.jobs"
	natsConsumer = "workers"
)

// natsServer is NATS with JetStream, built from the module that Millrace embeds.
type natsServer struct {
	url   string
	child *Child
}

func setupNATS(ctx context.Context, env *Env) (Runner, error) {
	dir, err := env.Folder("nats")
	if err != nil {
		return nil, err
	}
	program, err := buildNATS(ctx, dir)
	if err != nil {
		return nil, err
	}
	n := &natsServer{}
	child, addr, err := startPeer(ctx, env, "nats-server", func(port int) *exec.Cmd {
		// Only the configuration file has sync_interval.
		config := "listen: 127.0.0.1:" + strconv.Itoa(port) + "\njetstream {\n store_dir: " +
			strconv.Quote(dir) + "\n sync_interval: always\n}\n"
		path := filepath.Join(dir, "nats.conf")
		_ = os.WriteFile(path, []byte(config), 0o600) // without it the server does not start
		return exec.Command(program, "-c", path, "-l", filepath.Join(dir, "log"))
	}, func(_ context.Context, addr string) error {
		c, err := nats.Connect("nats://" + addr)
		if err != nil {
			return err
		}
		env.addServer("nats-server " + c.ConnectedServerVersion() + " sync_interval=always")
		c.Close()
		return nil
	})
	if err != nil {
		return nil, err
	}
	n.url, n.child = "nats://"+addr, child
	return &queueRunner{queueSystem: n, conns: env.Clients, batch: 1}, nil
}

// buildNATS builds the server into a folder and answers its file.
func buildNATS(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "nats-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", program,
		"github.com/nats-io/nats-server/v2")
	if out, err := build.CombinedOutput(); err != nil {
		return "", skipf("nats-server does not build from its module: %v: %s", err, out)
	}
	return program, nil
}

func (n *natsServer) Durability() string {
	return "durable: fsync of each message before its acknowledgement (sync_interval always); " +
		"finishes are acknowledged too"
}

func (n *natsServer) Close() error { return n.child.Stop() }

// Reset deletes the stream and its consumer and creates both again.
func (n *natsServer) Reset(ctx context.Context) error {
	conn, err := nats.Connect(n.url)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if err := js.DeleteStream(ctx, natsStream); err != nil &&
		!errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: natsStream,
		Subjects: []string{natsSubject}, Retention: jetstream.WorkQueuePolicy,
		Storage: jetstream.FileStorage}); err != nil {
		return err
	}
	_, err = js.CreateConsumer(ctx, natsStream, jetstream.ConsumerConfig{Durable: natsConsumer,
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1})
	return err
}

func (n *natsServer) Dial(ctx context.Context) (queueConn, error) {
	conn, err := nats.Connect(n.url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	consumer, err := js.Consumer(ctx, natsStream, natsConsumer)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &natsConn{conn: conn, js: js, consumer: consumer}, nil
}

type natsConn struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
	messages jetstream.MessagesContext // from the first Work on
}

func (c *natsConn) Close() error {
	if c.messages != nil {
		c.messages.Stop()
	}
	c.conn.Close()
	return nil
}

func (c *natsConn) Submit(ctx context.Context, num, _ int) error {
	_, err := c.js.Publish(ctx, natsSubject, appendPayload(nil, num))
	return err
}

// natsPrefetch is how many messages a connection asks for at a time.
const natsPrefetch = 32

func (c *natsConn) Work(ctx context.Context, finished func(int)) (err error) {
	if c.messages == nil {
		c.messages, err = c.consumer.Messages(jetstream.PullMaxMessages(natsPrefetch))
		if err != nil {
			return err
		}
	}
	m, err := c.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return err
	}
	if err := m.DoubleAck(ctx); err != nil {
		return err
	}
	finished(payloadNum(m.Data()))
	return nil
}
