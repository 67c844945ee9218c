package message

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
)

// Subject is a Queue on a subject of the streams.
type Subject struct {
	Streams *stream.Streams // its owner closes it
	Stream  string
	Subject string
	Durable string // the name of the consumer; nodes with the same one share the messages
	Log     *slog.Logger
}

const (
	// maxDeliveries is after how many deliveries a message is dropped. Its sender finds unfinished
	// work in the database and sends a new message.
	maxDeliveries = 20
	// redeliveryDelay is the delay before a message that was given back is delivered again.
	redeliveryDelay = time.Second
)

// Send implements Queue by publishing the messages.
func (s *Subject) Send(ctx context.Context, all []Message) error {
	out := make([]stream.Message, len(all))
	for i, m := range all {
		out[i] = stream.Message{Subject: s.Subject, ID: m.ID, Data: m.Body}
	}
	_, err := s.Streams.Publish(ctx, out)
	return err
}

// Receive implements Queue by consuming the subject.
func (s *Subject) Receive(ctx context.Context, handle func(context.Context, Delivery)) {
	c := stream.Consumer{
		Stream:     s.Stream,
		Subject:    s.Subject,
		Durable:    s.Durable,
		MaxDeliver: maxDeliveries,
		AckWait:    visibilityTimeout,
		Batch:      1,
	}
	err := s.Streams.Consume(ctx, c, func(ctx context.Context, batch []stream.Delivery) {
		for i := range batch {
			d := &batch[i]
			handle(ctx, Delivery{Body: d.Data, Ack: d.Ack, Nak: func() { d.Nak(redeliveryDelay) }})
		}
	})
	if err != nil {
		s.Log.Error("messages are no longer received", telemetry.ErrorMessage, err)
	}
}

// Ping implements Queue.
func (s *Subject) Ping(ctx context.Context) error { return s.Streams.Ping(ctx) }

// Close implements Queue. It does nothing, since the owner of the streams closes them.
func (s *Subject) Close() {}
