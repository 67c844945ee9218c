package message

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
)

// Subject is a subject of the streams as a queue.
type Subject struct {
	Streams *stream.Streams // closed by whoever opened them
	Stream  string
	Subject string
	Durable string // nodes with the same one share the messages
	Log     *slog.Logger
}

const (
	// maxDeliveries is after how many a message is dropped: whoever sent it looks after what it is
	// about.
	maxDeliveries = 20
	// redeliveryDelay is when a message that was given back comes again.
	redeliveryDelay = time.Second
)

// Send publishes messages.
func (s *Subject) Send(ctx context.Context, all []Message) error {
	out := make([]stream.Message, len(all))
	for i, m := range all {
		out[i] = stream.Message{Subject: s.Subject, ID: m.ID, Data: m.Body}
	}
	_, err := s.Streams.Publish(ctx, out)
	return err
}

// Receive consumes messages.
func (s *Subject) Receive(ctx context.Context, handle func(context.Context, Delivery)) {
	c := stream.Consumer{Stream: s.Stream, Subject: s.Subject, Durable: s.Durable,
		MaxDeliver: maxDeliveries, AckWait: visibilityTimeout, Batch: 1}
	err := s.Streams.Consume(ctx, c, func(ctx context.Context, batch []stream.Delivery) {
		for i := range batch {
			d := &batch[i]
			handle(ctx, Delivery{Body: d.Data, Ack: d.Ack, Nak: func() { d.Nak(redeliveryDelay) }})
		}
	})
	if err != nil {
		s.Log.Error("messages are not received any more", telemetry.ErrorMessage, err)
	}
}

// Ping asks the streams.
func (s *Subject) Ping(ctx context.Context) error { return s.Streams.Ping(ctx) }

// Close does nothing: the streams are somebody else's.
func (s *Subject) Close() {}
