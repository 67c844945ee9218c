package stream

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// window is how long the id of a message is remembered.
const window = 2 * time.Minute

// replicas is how many nodes of a cluster keep each message of a stream that is made there.
const replicas = 3

// provision makes a stream, or changes what it must have; the rest, such as where a cluster keeps it, is the
// operator's. Two nodes may do so at the same time.
func (s *Streams) provision(ctx context.Context, spec *Spec) error {
	ctx, cancel := limited(ctx)
	defer cancel()
	found, err := s.js.Stream(ctx, spec.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return s.create(ctx, spec)
	}
	if err != nil {
		return failed("stream.provision", "the stream "+spec.Name+" cannot be looked up", err)
	}
	is := found.CachedInfo().Config
	want := is
	spec.shape(&want)
	if reflect.DeepEqual(is, want) {
		return nil
	}
	_, err = s.js.UpdateStream(ctx, want)
	return failed("stream.provision", "the stream "+spec.Name+" cannot be changed to what is needed", err)
}

func (s *Streams) create(ctx context.Context, spec *Spec) error {
	config := jetstream.StreamConfig{Name: spec.Name, Replicas: 1}
	if s.conn.ConnectedClusterName() != "" {
		config.Replicas = replicas
	}
	spec.shape(&config)
	_, err := s.js.CreateOrUpdateStream(ctx, config)
	if api := (*jetstream.APIError)(nil); config.Replicas > 1 && errors.As(err, &api) {
		s.config.Log.Warn("the cluster has no room for copies of a stream: it gets one", "stream", spec.Name, "error_message", err.Error())
		config.Replicas = 1
		_, err = s.js.CreateOrUpdateStream(ctx, config)
	}
	return failed("stream.provision", "the stream "+spec.Name+" cannot be made", err)
}

// shape sets what the verbs rely on.
func (s *Spec) shape(c *jetstream.StreamConfig) {
	if !slices.Equal(c.Subjects, s.Subjects) {
		c.Subjects = s.Subjects
	}
	c.MaxAge, c.Duplicates = s.MaxAge, window
	if s.Consumer != "" {
		c.MaxAge = 0
	}
	if c.MaxAge > 0 && c.MaxAge < c.Duplicates {
		c.Duplicates = c.MaxAge
	}
	c.AllowDirect, c.AllowAtomicPublish = true, true
}

// again runs a verb on a stream, and once more where the stream was gone and has been made anew.
func (s *Streams) again(ctx context.Context, spec *Spec, verb func() error) error {
	err := verb()
	if !gone(err) || spec == nil {
		return err
	}
	if err := s.provision(ctx, spec); err != nil {
		return err
	}
	return verb()
}
