package stream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// Follow gives fn the messages of a subject from an offset on, and then each as it is stored, in order and without
// gaps, until ctx is done, which is no error, or fn returns an error, which is returned.
func (s *Streams) Follow(ctx context.Context, stream, subject string, from uint64, fn func(Entry) error) error {
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}}
	if from > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	}
	var messages jetstream.MessagesContext
	err := s.again(ctx, s.named(stream), func() error {
		consumer, err := s.js.OrderedConsumer(ctx, stream, config)
		if err != nil {
			return err
		}
		messages, err = consumer.Messages()
		return err
	})
	for err == nil {
		var msg jetstream.Msg
		if msg, err = messages.Next(jetstream.NextContext(ctx)); err != nil {
			break
		}
		var e Entry
		if e, err = delivered(msg); err == nil {
			if err := fn(e); err != nil {
				messages.Stop()
				return err
			}
		}
	}
	if messages != nil {
		messages.Stop()
	}
	if ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) && s.conn.IsClosed() {
		return nil
	}
	return failed("stream.follow", "", err)
}

// delivered is the entry that a consumer was handed.
func delivered(msg jetstream.Msg) (Entry, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Entry{}, err
	}
	return Entry{Offset: meta.Sequence.Stream, Subject: msg.Subject(), Data: msg.Data(), Time: meta.Timestamp.UTC()}, nil
}
