package stream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// Prune removes messages beyond MaxAge from the streams with a Consumer, unless that consumer has
// not finished them (FB-094). The server itself prunes the other streams. Every node may run Prune.
// Maintenance calls it. A message that a consumer has not finished is kept, however old it is: it
// is work that has not been done.
func (s *Streams) Prune(ctx context.Context) error {
	if !s.firstUse.isReady() {
		return nil
	}
	for i := range s.config.Specs {
		spec := &s.config.Specs[i]
		if spec.Consumer == "" || spec.MaxAge == 0 {
			continue
		}
		if err := s.prune(ctx, spec); err != nil {
			return wrapError("stream.prune", "the stream "+spec.Name+" cannot be pruned", err)
		}
	}
	return nil
}

// prune removes the messages before the first that must be kept: the first that is young enough, or
// the first that the consumer has not finished.
func (s *Streams) prune(ctx context.Context, spec *Spec) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	consumer, err := s.js.Consumer(ctx, spec.Name, spec.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // no message is finished yet
	}
	if err != nil {
		return s.contextCause(ctx, err)
	}
	firstKept := consumer.CachedInfo().AckFloor.Stream + 1
	cutoff := s.config.Now().Add(-spec.MaxAge)
	young, _, err := s.fetch(ctx, spec.Name, request{StartTime: &cutoff, NextFor: ">", Batch: 1})
	if err != nil {
		return err
	}
	if len(young) > 0 {
		firstKept = min(firstKept, young[0].Offset)
	}
	found, err := s.js.Stream(ctx, spec.Name)
	if err != nil {
		return s.contextCause(ctx, err)
	}
	if firstKept <= found.CachedInfo().State.FirstSeq {
		return nil
	}
	return s.contextCause(ctx, found.Purge(ctx, jetstream.WithPurgeSequence(firstKept)))
}
