package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/clock"
)

// followCheckInterval is after how long without a message a follower checks that the stream is
// still the same one.
const followCheckInterval = 5 * time.Second

// Follow calls fn with the messages of a subject from an offset on, and then with each new one, in
// order and without gaps. It returns nil when ctx ends, and the error of fn when fn fails. An
// offset that the stream has not reached belongs to an earlier stream of the name, whose files were
// lost: the stream is then followed from its start.
//
// Follow retries after errors, except for an error at the first attempt, which it returns. Nothing
// is acknowledged, and every follower gets every message; for work that must be done once there is
// Consume.
func (s *Streams) Follow(ctx context.Context, stream, subject string, from uint64,
	fn func(Entry) error) error {
	if !s.firstUse.await(ctx) {
		return nil
	}
	f := &follower{s: s, stream: stream, subject: subject, next: from, fn: fn}
	for {
		err := f.followOnce(ctx)
		switch {
		case f.fnErr != nil:
			return f.fnErr
		case ctx.Err() != nil || (f.started && s.conn.IsClosed()):
			return nil
		case !f.started:
			return wrapError("stream.follow", "", err)
		case err != nil:
			_ = s.reportResult(s.config.Monitor.Begin(), "stream.follow", err)
			s.config.Log.Debug("a follower of the streams starts again", "stream", stream,
				"error_message", err.Error())
			clock.Sleep(ctx, time.Second)
		}
	}
}

// follower is a Follow under way.
type follower struct {
	s               *Streams
	stream, subject string
	next            uint64 // the offset to continue from
	fn              func(Entry) error
	fnErr           error // what fn returned
	started         bool
}

// followOnce follows until the stream turns out to be another one, or a message to be missing.
func (f *follower) followOnce(ctx context.Context) error {
	messages, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer messages.Stop()
	f.started = true
	for n := uint64(1); ; n++ {
		msg, err := f.wait(ctx, messages)
		if msg == nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil || meta.Sequence.Consumer != n {
			return err
		}
		e := entryOfDelivery(msg, meta)
		if f.next, f.fnErr = e.Offset+1, f.fn(e); f.fnErr != nil {
			return nil
		}
	}
}

// wait returns the next message, or none when the stream turns out to be another one.
func (f *follower) wait(ctx context.Context, messages jetstream.MessagesContext) (jetstream.Msg,
	error) {
	for {
		within, cancel := context.WithTimeout(ctx, followCheckInterval)
		msg, err := messages.Next(jetstream.NextContext(within))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return msg, err
		}
		if f.offsetAhead(ctx) {
			return nil, nil
		}
	}
}

// offsetAhead reports that the stream is known to be a new one: it has not reached the next offset.
func (f *follower) offsetAhead(ctx context.Context) bool {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	_, last, err := f.s.offsetRange(ctx, f.stream)
	if err != nil {
		return false
	}
	return f.next > last+1
}

// open starts to read at the next offset. It creates a new consumer each time, since the old one
// may be on a server of the cluster that is dead.
func (f *follower) open(ctx context.Context) (messages jetstream.MessagesContext, err error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	if f.offsetAhead(ctx) {
		f.next = 0
	}
	config := jetstream.ConsumerConfig{
		FilterSubject:     f.subject,
		AckPolicy:         jetstream.AckNonePolicy,
		Replicas:          1,
		MemoryStorage:     true,
		InactiveThreshold: time.Minute,
	}
	if f.next > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, f.next
	}
	var consumer jetstream.Consumer
	err = f.s.retryRecreated(ctx, f.s.specByName(f.stream), func() error {
		return f.s.retryUntilAnswered(ctx, func(ctx context.Context) (err error) {
			consumer, err = f.s.js.CreateConsumer(ctx, f.stream, config)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return consumer.Messages(jetstream.PullHeartbeat(heartbeatInterval),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
}

// entryOfDelivery returns the entry of a message that a consumer received.
func entryOfDelivery(msg jetstream.Msg, meta *jetstream.MsgMetadata) Entry {
	return Entry{Offset: meta.Sequence.Stream, Subject: msg.Subject(), Data: msg.Data(),
		Time: meta.Timestamp.UTC()}
}
