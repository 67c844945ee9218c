package stream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream is identified by the time at which it was first created, since a server of another
// deployment has streams of the same names. One that was lost is created again with its id as
// metadata: by an operation that needs it, or by KeepIDs. A node that starts before that finds no
// stream and knows no id, so it creates one that looks like a stream of another server, until
// KeepIDs of a node that has used the former one gives it that id.

// idMetadata is the metadata key with the id of a stream that was created again.
const idMetadata = "millrace_id"

// loadID loads the id of a stream: the time of its first creation in nanoseconds.
func (s *Streams) loadID(ctx context.Context, spec *Spec) error {
	current, err := s.info(ctx, spec.Name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	spec.id = cmp.Or(current.Config.Metadata[idMetadata],
		current.Created.UTC().Format(time.RFC3339Nano))
	spec.created = current.Created
	return nil
}

// idOf returns the id of a stream, which is empty until it is loaded.
func (s *Streams) idOf(spec *Spec) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return spec.id
}

// IDs returns the identity of each stream by its name. It differs from that of a stream of the same
// name on another server. A stream that is lost while a node uses it is created again with its id.
// Package storageid compares them with those that the database was bound to. Streams that are not
// open have none.
func (s *Streams) IDs() map[string]string {
	ids := map[string]string{}
	if !s.IsOpen() {
		return ids
	}
	for i := range s.config.Specs {
		ids[s.config.Specs[i].Name] = s.idOf(&s.config.Specs[i])
	}
	return ids
}

// LoadIDs loads the ids again, for a node that is refused because of them: another node may have
// changed them with KeepIDs.
func (s *Streams) LoadIDs(ctx context.Context) error {
	for i := range s.config.Specs {
		if err := s.loadID(ctx, &s.config.Specs[i]); err != nil {
			return wrapError("stream.load_ids", "", err)
		}
	}
	return nil
}

// KeepIDs creates streams that were lost again, and gives its id to each that another node has
// created since. A node calls it whose ids are those of its database.
func (s *Streams) KeepIDs(ctx context.Context) error {
	for i := range s.config.Specs {
		if err := s.keepID(ctx, &s.config.Specs[i]); err != nil {
			return wrapError("stream.keep_ids", "", err)
		}
	}
	return nil
}

// keepID does so for one stream. A stream that is older than the one which this node has found, or
// that has an id of its own, is of another deployment and is left as it is.
func (s *Streams) keepID(ctx context.Context, spec *Spec) error {
	current, err := s.info(ctx, spec.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return s.provision(ctx, spec)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	id, found := spec.id, spec.created
	s.mu.Unlock()
	isOwn := current.Config.Metadata[idMetadata] != "" || !current.Created.After(found)
	if isOwn {
		return nil
	}
	want := current.Config
	want.Metadata = map[string]string{idMetadata: id}
	maps.Copy(want.Metadata, current.Config.Metadata)
	return s.retryUntilAnswered(ctx, func(ctx context.Context) error {
		_, err := s.js.UpdateStream(ctx, want)
		return err
	})
}
