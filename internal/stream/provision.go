package stream

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/clock"
)

// dedupWindow is how long a stream remembers the ids of messages.
const dedupWindow = 2 * time.Minute

// maxReplicas is the number of copies of a stream that is created in a cluster.
const maxReplicas = 3

// provision creates a stream, or changes the parts of its configuration that this package relies
// on. The rest, such as its placement in a cluster, is left to the operator. Two nodes may
// provision a stream at the same time. It is called when a node starts, and by every operation that
// finds its stream missing.
func (s *Streams) provision(ctx context.Context, spec *Spec) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	err := s.change(ctx, spec)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = s.create(ctx, spec)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node has created it
		err = s.change(ctx, spec)
	}
	return err
}

// change updates the configuration of an existing stream, if needed.
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
		"the stream "+spec.Name+" cannot be updated", err)
}

// joinTimeout is how long a stream waits for servers of a cluster that have not joined yet.
const joinTimeout = 6 * time.Second

// create creates a stream, with several copies where the cluster permits them. A refusal because
// there is no leader yet, or too few servers, is retried, as the cluster may be starting: a stream
// that was created with one copy would keep one.
func (s *Streams) create(ctx context.Context, spec *Spec) error {
	config := jetstream.StreamConfig{Name: spec.Name, Replicas: 1}
	if s.conn.ConnectedClusterName() != "" {
		config.Replicas = maxReplicas
	}
	spec.applyTo(&config)
	if id := s.idOf(spec); id != "" {
		config.Metadata = map[string]string{idMetadata: id} // it existed before
	}
	create := func(ctx context.Context) error {
		_, err := s.js.CreateStream(ctx, config)
		return err
	}
	err := s.retryUntilAnswered(ctx, create)
	joining, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	for hasCode(err, codeNoPeers) && clock.Sleep(joining, minPause) {
		err = s.retryUntilAnswered(ctx, create)
	}
	var refusal *jetstream.APIError
	refused := errors.As(err, &refusal) && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse)
	if refused && config.Replicas > 1 {
		s.config.Log.Warn("the cluster refuses copies of a stream, which is created with one",
			"stream", spec.Name, "error_message", err.Error())
		config.Replicas = 1
		err = s.retryUntilAnswered(ctx, create)
	}
	return wrapError("stream.provision", "the stream "+spec.Name+" cannot be created", err)
}

// applyTo sets the parts of a configuration that this package relies on.
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

// retryRecreated runs an operation on a stream. Where the stream is missing, it creates the stream
// and runs the operation again. The servers of a cluster do not all see the new stream at once, so
// this may take several attempts.
func (s *Streams) retryRecreated(ctx context.Context, spec *Spec,
	operation func() error) error {
	pause := time.Duration(0)
	for {
		err := operation()
		if !isMissing(err) || spec == nil || ctx.Err() != nil {
			return err
		}
		if err := s.provision(ctx, spec); err != nil {
			return err
		}
		clock.Sleep(ctx, pause)
		pause = minPause
	}
}

// Names returns the names of the streams.
func (s *Streams) Names() []string {
	names := make([]string, len(s.config.Specs))
	for i := range s.config.Specs {
		names[i] = s.config.Specs[i].Name
	}
	return names
}
