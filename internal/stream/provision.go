package stream

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/clock"
)

// dedupWindow is how long the id of a message is remembered.
const dedupWindow = 2 * time.Minute

// maxReplicas is how many nodes of a cluster keep each message of a stream that is made there.
const maxReplicas = 3

// provision makes a stream, or changes what it must have; the rest, such as where a cluster keeps
// it, is the operator's. Two nodes may do so at the same time.
func (s *Streams) provision(ctx context.Context, spec *Spec) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	err := s.change(ctx, spec)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = s.create(ctx, spec)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was faster
		err = s.change(ctx, spec)
	}
	return err
}

func (s *Streams) change(ctx context.Context, spec *Spec) error {
	current, err := s.info(ctx, spec.Name)
	if err != nil {
		return wrapError("stream.provision", "the stream "+spec.Name+" cannot be looked up", err)
	}
	want := current.Config
	spec.applyTo(&want)
	if reflect.DeepEqual(current.Config, want) {
		return nil
	}
	err = s.retryUntilAnswered(ctx, func(ctx context.Context) error {
		_, err := s.js.UpdateStream(ctx, want)
		return err
	})
	return wrapError("stream.provision",
		"the stream "+spec.Name+" cannot be changed to what is needed", err)
}

// create makes a stream with copies where the cluster has room for them. That it has no leader yet
// says nothing of that: a stream made with one copy would keep to one.
func (s *Streams) create(ctx context.Context, spec *Spec) error {
	config := jetstream.StreamConfig{Name: spec.Name, Replicas: 1}
	if s.conn.ConnectedClusterName() != "" {
		config.Replicas = maxReplicas
	}
	spec.applyTo(&config)
	if spec.id != "" {
		config.Metadata = map[string]string{idMetadata: spec.id} // it is made again
	}
	create := func(ctx context.Context) error {
		_, err := s.js.CreateStream(ctx, config)
		return err
	}
	err := s.retryUntilAnswered(ctx, create)
	if api := (*jetstream.APIError)(nil); config.Replicas > 1 && errors.As(err, &api) &&
		!errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		s.config.Log.Warn("the cluster has no room for copies of a stream: it gets one", "stream",
			spec.Name, "error_message", err.Error())
		config.Replicas = 1
		err = s.retryUntilAnswered(ctx, create)
	}
	return wrapError("stream.provision", "the stream "+spec.Name+" cannot be made", err)
}

// applyTo sets what the verbs rely on.
func (s *Spec) applyTo(c *jetstream.StreamConfig) {
	if !slices.Equal(c.Subjects, s.Subjects) {
		c.Subjects = s.Subjects
	}
	c.MaxAge, c.Duplicates = s.MaxAge, dedupWindow
	if s.Consumer != "" {
		c.MaxAge = 0
	}
	if c.MaxAge > 0 && c.MaxAge < c.Duplicates {
		c.Duplicates = c.MaxAge
	}
	c.AllowDirect, c.AllowAtomicPublish = true, true
}

// retryRecreated runs a verb on a stream, and once more where the stream was gone and has been made
// anew. The servers of a cluster do not learn of that at the same time, so it may take several
// tries there.
func (s *Streams) retryRecreated(ctx context.Context, spec *Spec, verb func() error) error {
	err := verb()
	for pause := time.Duration(0); isMissing(err) && spec != nil &&
		ctx.Err() == nil; pause = minPause {
		if err := s.provision(ctx, spec); err != nil {
			return err
		}
		clock.Sleep(ctx, pause)
		err = verb()
	}
	return err
}

// idMetadata has the id of a stream that was made again.
const idMetadata = "millrace_id"

// loadID learns the id of a stream: when it was first made, to the nanosecond.
func (s *Streams) loadID(ctx context.Context, spec *Spec) error {
	current, err := s.info(ctx, spec.Name)
	if err == nil {
		spec.id = cmp.Or(current.Config.Metadata[idMetadata],
			current.Created.UTC().Format(time.RFC3339Nano))
	}
	return err
}

// IDs tell each stream, by its name, from those of the same name on other servers. A stream that is
// lost while a node has it open is made again under its id.
func (s *Streams) IDs() map[string]string {
	ids := map[string]string{}
	for i := range s.config.Specs {
		ids[s.config.Specs[i].Name] = s.config.Specs[i].id
	}
	return ids
}
