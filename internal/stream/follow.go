package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// silence is how long nothing has come when it is looked whether the stream is still the one that is followed.
const silence = 5 * time.Second

// Follow gives fn the messages of a subject from an offset on, and then each as it is stored, in order and without
// gaps, until ctx is done, which is no error, or fn returns an error, which is returned. An offset that the stream has not
// come to is one of a stream that was there before it, as when its files were lost: then all of this one follows.
func (s *Streams) Follow(ctx context.Context, stream, subject string, from uint64, fn func(Entry) error) error {
	f := &follower{s: s, stream: stream, subject: subject, next: from, fn: fn}
	var err error
	for err == nil && f.told == nil {
		err = f.untilAnew(ctx)
	}
	if f.told != nil {
		return f.told
	}
	if ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) && s.conn.IsClosed() {
		return nil
	}
	return failed("stream.follow", "", err)
}

// follower is a Follow under way.
type follower struct {
	s               *Streams
	stream, subject string
	next            uint64 // the offset it goes on from
	fn              func(Entry) error
	told            error // what fn returned
}

// untilAnew follows until the stream is found to be another one.
func (f *follower) untilAnew(ctx context.Context) error {
	messages, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer messages.Stop()
	for f.told == nil {
		within, cancel := context.WithTimeout(ctx, silence)
		msg, err := messages.Next(jetstream.NextContext(within))
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			if f.ahead(ctx) {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		e, err := delivered(msg)
		if err != nil {
			return err
		}
		f.next, f.told = e.Offset+1, f.fn(e)
	}
	return nil
}

// ahead tells whether the stream is known to be far from coming to the next offset.
func (f *follower) ahead(ctx context.Context) bool {
	ctx, cancel := limited(ctx)
	defer cancel()
	_, last, err := f.s.bounds(ctx, f.stream)
	return err == nil && f.next > last+1
}

// open begins where it is to go on.
func (f *follower) open(ctx context.Context) (messages jetstream.MessagesContext, err error) {
	if f.ahead(ctx) {
		f.next = 0
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{f.subject}}
	if f.next > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, f.next
	}
	err = f.s.again(ctx, f.s.named(f.stream), func() error {
		consumer, err := f.s.js.OrderedConsumer(ctx, f.stream, config)
		if err != nil {
			return err
		}
		messages, err = consumer.Messages()
		return err
	})
	return messages, err
}

// delivered is the entry that a consumer was handed.
func delivered(msg jetstream.Msg) (Entry, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Entry{}, err
	}
	return Entry{Offset: meta.Sequence.Stream, Subject: msg.Subject(), Data: msg.Data(), Time: meta.Timestamp.UTC()}, nil
}
