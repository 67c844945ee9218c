package stream_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
)

func whenUsed(tb testing.TB) stream.Config {
	c := testConfig(tb)
	c.StartWhenUsed = true
	return c
}

func filesOf(c stream.Config) string { return filepath.Join(c.Dir, "jetstream") }

// TestFirstMessageStarts: until the first message streams are empty and well, and nothing starts a
// server for them; who waits for messages gets that one. With files the server starts at once.
func TestFirstMessageStarts(t *testing.T) {
	t.Parallel()
	c := whenUsed(t)
	s, err := stream.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &fixture{Streams: s}
	received, followed := make(chan string, 1), make(chan string, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_ = s.Consume(ctx, workerConsumer(), func(_ context.Context, batch []stream.Delivery) {
			batch[0].Ack()
			received <- string(batch[0].Data)
		})
	}()
	go func() {
		_ = s.Follow(ctx, "WORK", "work", 0, func(e stream.Entry) error {
			followed <- string(e.Data)
			return nil
		})
	}()
	newest, err := s.Newest(ctx, "DEAD", "dead", 0, 10)
	if read := w.mustRead(t, "LOGS", "logs.a", 0, 10); len(read)+len(newest) > 0 || err != nil {
		t.Errorf("read %v and %v, %v", read, newest, err)
	}
	if _, err := s.Get(ctx, "DEAD", 1); !job.IsKind(err, job.NotFound) {
		t.Errorf("a message before the first: %v", err)
	}
	if err := errors.Join(s.Ping(ctx), s.Prune(ctx)); err != nil {
		t.Error(err)
	}
	if len(s.IDs()) > 0 || s.IsOpen() || s.Address() != "" {
		t.Errorf("the ids are %v", s.IDs())
	}
	if _, err := os.Stat(filesOf(c)); !os.IsNotExist(err) {
		t.Errorf("there are files: %v", err)
	}
	w.mustPublish(t, newMessages("work", "m", 1)...)
	if r, f := testkit.Receive(t, "the message", received),
		testkit.Receive(t, "the message, followed", followed); r != "m0" || f != "m0" {
		t.Errorf("received %q, followed %q", r, f)
	}
	if len(s.IDs()) != len(testSpecs()) || !s.IsOpen() {
		t.Errorf("the ids are %v", s.IDs())
	}
	s.Close()
	if again := mustOpen(t, c); !again.IsOpen() {
		t.Error("streams with files wait for a message")
	}
}

// TestStreamsThatAreNeeded: a server that others reach starts at once, and so do streams that are
// asked for.
func TestStreamsThatAreNeeded(t *testing.T) {
	t.Parallel()
	c := whenUsed(t)
	c.Listen = "127.0.0.1:0"
	if s := mustOpen(t, c); !s.IsOpen() || s.Address() == "" {
		t.Error("a server that listens waits for a message")
	}
	s := mustOpen(t, whenUsed(t))
	for range 2 {
		if err := s.Start(t.Context()); err != nil || !s.IsOpen() {
			t.Errorf("it is started: %v, %v", s.IsOpen(), err)
		}
	}
	if names := s.Names(); !slices.Equal(names, []string{"WORK", "LOGS", "DEAD"}) {
		t.Errorf("the names are %v", names)
	}
}

// TestBeforeUse: nothing is published before the owner of the streams agrees, who is asked again.
func TestBeforeUse(t *testing.T) {
	t.Parallel()
	c := whenUsed(t)
	refused := errors.New("refused")
	var asked atomic.Int64
	var s *stream.Streams
	c.BeforeUse = func(context.Context) error {
		if len(s.IDs()) == 0 {
			t.Error("asked before the streams have ids")
		}
		if asked.Add(1) < 3 {
			return refused
		}
		return nil
	}
	s = mustOpen(t, c)
	w := &fixture{Streams: s}
	for range 2 {
		if _, err := s.Publish(t.Context(), newMessages("work", "m", 1)); err != refused {
			t.Errorf("got %v", err)
		}
	}
	for range 2 {
		w.mustPublish(t, newMessages("work", "m", 1)...)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times", n)
	}
	if read := w.mustRead(t, "WORK", "work", 0, 10); len(read) != 1 {
		t.Errorf("read %v", read)
	}
}

// TestStartFails: a server that cannot be started fails the message, and is started with a later
// one.
func TestStartFails(t *testing.T) {
	t.Parallel()
	c := whenUsed(t)
	s := mustOpen(t, c)
	if err := os.WriteFile(filesOf(c), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(t.Context(), newMessages("work", "m", 1)); err == nil {
		t.Fatal("it is published without files")
	}
	if err := os.Remove(filesOf(c)); err != nil {
		t.Fatal(err)
	}
	w := &fixture{Streams: s}
	w.mustPublish(t, newMessages("work", "m", 1)...)
}

// TestClosedBeforeUse: who waits for the first message is released by Close, and nothing starts
// afterwards.
func TestClosedBeforeUse(t *testing.T) {
	t.Parallel()
	c := whenUsed(t)
	s := mustOpen(t, c)
	ended := make(chan error, 1)
	go func() { ended <- s.Consume(context.Background(), workerConsumer(), nil) }()
	s.Close()
	if err := testkit.Receive(t, "the end of a consumer", ended); err != nil {
		t.Error(err)
	}
	if _, err := s.Publish(t.Context(), newMessages("work", "m", 1)); !job.IsKind(err,
		job.Unavailable) {
		t.Errorf("after the end: %v", err)
	}
	if err := s.Start(t.Context()); !job.IsKind(err, job.Unavailable) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := os.Stat(filesOf(c)); !os.IsNotExist(err) {
		t.Errorf("there are files: %v", err)
	}
}
