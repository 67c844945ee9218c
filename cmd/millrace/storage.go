package main

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/stream"
)

// FetchBox and Images keep more than jobs: objects, and messages in streams. Each of the two is
// either in the data directory or elsewhere, as objects.url and stream.url say. A storage elsewhere
// is opened before the store, so that a wrong address leaves no data directory behind:
//
//	connect ──▶ openStorage(externalStorage)
//	newNode ──▶ openStorage(localStorage) ──▶ bindStorage, with PostgreSQL
//
// While a node runs, either may become unavailable: what needs it waits or is refused (outages.go).

// openStorage is called with one of these places.
const (
	localStorage    = false
	externalStorage = true
)

// openStorage opens the objects and streams that are kept there, if a contract needs them. It is
// called once for each place; what it opened before an error is closed by closeStorage.
func (d *deps) openStorage(ctx context.Context, external bool) error {
	s := d.settings
	needsObjects := slices.ContainsFunc(s.served(), func(c *contract.Definition) bool {
		return c.UsesObjects
	})
	if needsObjects && (s.Objects.URL != "") == external {
		if err := d.openObjects(ctx); err != nil {
			return err
		}
	}
	if s.UsesStreams() && (s.Stream.URL != "") == external {
		return d.openStreams(ctx)
	}
	return nil
}

// bindStorage makes sure that the nodes of one database use the same objects and streams. It only
// prepares the check, which begins when there is an engine. A storage in the data directory is
// named by its path: a copy of it under another node must be noticed.
func (d *deps) bindStorage() {
	if !databaseOf(d.settings).shared || d.objects == nil {
		return
	}
	c := storageid.Config{Log: d.log, Objects: d.objects, Streams: d.streams,
		Rebind: d.settings.RebindStorage}
	if d.settings.Objects.URL == "" {
		c.ObjectsDir = d.objectsDir()
	}
	if d.streams != nil && d.settings.Stream.URL == "" {
		c.StreamsDir = d.streamsDir()
	}
	d.binding = storageid.New(c)
}

// objectsDir is the directory of the objects, if they are in the data directory.
func (d *deps) objectsDir() string { return filepath.Join(d.settings.DataDir, objectsName) }

// streamsDir is the directory of the embedded NATS server.
func (d *deps) streamsDir() string { return filepath.Join(d.settings.DataDir, "streams") }

// openObjects opens the object storage. It fails on a wrong address only: a storage that is
// unavailable is logged as an outage.
func (d *deps) openObjects(ctx context.Context) (err error) {
	d.objects, err = object.Open(ctx, object.Config{
		Dir:     d.objectsDir(),
		URL:     d.settings.Objects.URL,
		Bucket:  d.settings.Objects.Bucket,
		Monitor: d.objectsMonitor(),
	})
	if err != nil {
		return cli.UnableError("objects.url: %s", plainError(err))
	}
	d.probeObjects(ctx)
	return nil
}

// streamSpecs are the streams of the contracts that are served, in the order of definitions.
func (d *deps) streamSpecs() []stream.Spec {
	var specs []stream.Spec
	for _, c := range d.settings.served() {
		if uses := c.Settings.UsesStreams; uses != nil && uses() {
			specs = append(specs, c.Streams()...)
		}
	}
	return specs
}

// openStreams starts the embedded NATS server or connects to the cluster, and makes the streams
// that are missing. A cluster that is unavailable is an error. A server in an empty directory waits
// for the first message.
func (d *deps) openStreams(ctx context.Context) (err error) {
	s := &d.settings.Stream
	d.streams, err = stream.Open(ctx, stream.Config{
		URL:     s.URL,
		Listen:  s.Listen,
		Token:   s.Token.Reveal(),
		Dir:     d.streamsDir(),
		Node:    d.node,
		Specs:   d.streamSpecs(),
		Log:     d.log,
		Monitor: d.streamsMonitor(),
		Now:     d.process.Now,

		StartWhenUsed: d.mayWaitForStreams(),
		BeforeUse:     func(ctx context.Context) error { return d.binding.StreamsOpened(ctx) },
	})
	if err != nil && s.URL != "" {
		return cli.UnableError("stream.url (%s): %s", outage.HostsOf(s.URL, "4222"),
			plainError(err))
	}
	if err != nil {
		return cli.UnableError("streams: %s", plainError(err))
	}
	return nil
}

// mayWaitForStreams reports whether an embedded server may be started with its first message. Where
// nodes share the objects alone, one with streams of its own is to be refused at its start.
func (d *deps) mayWaitForStreams() bool {
	return !databaseOf(d.settings).shared || d.settings.Objects.URL == ""
}

// probeTimeout bounds how long a start waits for the object storage.
const probeTimeout = 3 * time.Second

// probeObjects logs at the start that the object storage is unavailable or has no such bucket. That
// does not stop the start: what needs objects waits until they are there.
func (d *deps) probeObjects(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_ = d.objects.Ping(ctx) // its outage.Monitor logs a failure
}

// closeStorage closes what openStorage and the contracts opened. Contracts come first, the last one
// opened before the others, because their queues use the streams.
func (d *deps) closeStorage() {
	for _, end := range slices.Backward(d.onClose) {
		end()
	}
	if d.streams != nil {
		d.streams.Close()
	}
	if d.objects != nil {
		_ = d.objects.Close() // what was acknowledged is stored
	}
}
