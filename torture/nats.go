package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// natsServer is the NATS server that several nodes share. It is a process of its own, so that it
// can be killed, and keeps its address over all of its lives.
type natsServer struct {
	address, dir string
	cmd          *exec.Cmd // nil before its first start
	ended        chan struct{}
}

// natsCommand is the first argument of a process that is a NATS server. Its address and directory
// follow.
const natsCommand = "serve-nats"

// serveNATS is the NATS server where the arguments of this process say so: the program starts
// itself as one. It ends with the process that has started it, and otherwise returns at once.
func serveNATS() {
	if len(os.Args) != 4 || os.Args[1] != natsCommand {
		return
	}
	address, dir := os.Args[2], os.Args[3]
	host, _, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(portOf(address))
	s, err := server.NewServer(&server.Options{Host: host, Port: number, JetStream: true,
		StoreDir: dir, SyncAlways: true, NoSigs: true, NoLog: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitNoVerdict)
	}
	s.Start()
	_, _ = io.Copy(io.Discard, os.Stdin) // the other process has the end of the pipe
	os.Exit(exitGood)
}

// start starts the server, which syncs what it acknowledges, and returns when it takes connections.
func (n *natsServer) start(ctx context.Context) error {
	file, err := os.Executable()
	if err != nil {
		return err
	}
	n.cmd = exec.Command(file, natsCommand, n.address, n.dir)
	n.cmd.Stderr = os.Stderr
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := n.cmd.StdinPipe(); err != nil {
		return err
	}
	if n.ended, err = startProcess(n.cmd); err != nil {
		return err
	}
	return awaitListener(ctx, n.address)
}

// awaitListener waits until a server takes connections at an address.
func awaitListener(ctx context.Context, address string) error {
	for began := time.Now(); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			if time.Since(began) > readyTimeout {
				return fmt.Errorf("no server within %s: %w", readyTimeout, err)
			}
			if !sleep(ctx, 10*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		return conn.Close()
	}
}

// kill ends the server as a crash does, if it runs.
func (n *natsServer) kill() {
	if n.ended != nil {
		_ = n.cmd.Process.Kill()
		<-n.ended
	}
}

// empty ends the server and removes all that it has, as the loss of its disk does.
func (n *natsServer) empty() error {
	n.kill()
	return os.RemoveAll(n.dir)
}

// delete removes all streams, or their consumers alone, while the nodes use them.
func (n *natsServer) delete(ctx context.Context, consumersAlone bool) error {
	js, end, err := n.connect()
	if err != nil {
		return err
	}
	defer end()
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if !consumersAlone {
			err = js.DeleteStream(ctx, name)
		} else {
			err = deleteConsumers(ctx, js, name)
		}
		if err != nil {
			return err
		}
	}
	return names.Err()
}

// deleteConsumers removes the consumers of a stream. One may end by itself meanwhile.
func deleteConsumers(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	names := stream.ConsumerNames(ctx)
	for consumer := range names.Name() {
		err := stream.DeleteConsumer(ctx, consumer)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return names.Err()
}
