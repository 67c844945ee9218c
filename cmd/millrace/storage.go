package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/places"
	"github.com/millrace/millrace/internal/stream"
)

// FetchBox and Images keep more than jobs: objects, and messages in streams. Each of the two is
// either in the data directory or elsewhere, as objects.url and stream.url say. What is elsewhere
// is opened before the store, so that a wrong address leaves no data directory behind.
const (
	localStorage    = false
	externalStorage = true
)

// openStorage opens the objects and streams that are kept there, if a contract needs them.
func (k *deps) openStorage(ctx context.Context, external bool) error {
	s := k.settings
	needsObjects := s.Serves(fetchbox.Name) || s.Serves(images.Name)
	if needsObjects && (s.Objects.URL != "") == external {
		if err := k.openObjects(ctx); err != nil {
			return err
		}
	}
	if s.UsesStreams() && (s.Stream.URL != "") == external {
		return k.openStreams(ctx)
	}
	return nil
}

// bindStorage makes sure that the nodes of one database use the same objects and streams.
func (k *deps) bindStorage() {
	if !k.settings.Store.Postgres() || k.objects == nil {
		return
	}
	c := places.Config{Log: k.log, Objects: k.objects, Streams: k.streams,
		Rebind: k.settings.RebindStorage}
	if k.settings.Objects.URL == "" {
		c.ObjectsDir = k.objectsDir()
	}
	if k.streams != nil && k.settings.Stream.URL == "" {
		c.StreamsDir = k.streamsDir()
	}
	k.places = places.New(c)
}

func (k *deps) objectsDir() string { return filepath.Join(k.settings.DataDir, "objects") }
func (k *deps) streamsDir() string { return filepath.Join(k.settings.DataDir, "streams") }

func (k *deps) openObjects(ctx context.Context) (err error) {
	k.objects, err = object.Open(ctx, object.Config{
		Dir:    k.objectsDir(),
		URL:    k.settings.Objects.URL,
		Bucket: k.settings.Objects.Bucket,
		Part:   k.objectsPart(),
	})
	if err != nil {
		return cli.UnableError("objects.url: %s", plainError(err))
	}
	k.probeObjects(ctx)
	return nil
}

// streamSpecs are the streams of the contracts that are served.
func (k *deps) streamSpecs() []stream.Spec {
	var specs []stream.Spec
	if s := &k.settings.FetchBox; k.settings.Serves(fetchbox.Name) {
		specs = append(specs, fetchbox.Streams(s.TasksRetention, s.LogsRetention,
			s.DLQRetention)...)
	}
	if k.settings.Serves(images.Name) && k.settings.Images.QueueURL == "" {
		specs = append(specs, images.Streams()...)
	}
	return specs
}

func (k *deps) openStreams(ctx context.Context) (err error) {
	s := &k.settings.Stream
	k.streams, err = stream.Open(ctx, stream.Config{
		URL:    s.URL,
		Listen: s.Listen,
		Token:  s.Token.Reveal(),
		Dir:    k.streamsDir(),
		Node:   k.node,
		Specs:  k.streamSpecs(),
		Log:    k.log,
		Part:   k.streamsPart(),
		Now:    k.process.Now,
	})
	if err != nil && s.URL != "" {
		return cli.UnableError("stream.url (%s): %s", hostsOf(s.URL, "4222"), plainError(err))
	}
	if err != nil {
		return cli.UnableError("streams: %s", plainError(err))
	}
	return nil
}

// probeTimeout bounds how long a start waits for the object storage.
const probeTimeout = 3 * time.Second

// probeObjects logs at the start that the object storage is away or has no such bucket. That does
// not stop the start: what needs objects waits until they are there.
func (k *deps) probeObjects(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_ = k.objects.Ping(ctx) // its outage.Part logs a failure
}

// closeStorage closes what openStorage and connectImages opened.
func (k *deps) closeStorage() {
	if k.messages != nil {
		k.messages.Close()
	}
	if k.streams != nil {
		k.streams.Close()
	}
	if k.objects != nil {
		_ = k.objects.Close() // what was acknowledged is stored
	}
}
