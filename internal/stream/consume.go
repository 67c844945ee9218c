package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/outage"
)

// Consumer says which messages are consumed and how. Nodes with the same Durable share the
// messages. The consumer is durable: the server remembers which messages are finished, also while
// no node runs.
type Consumer struct {
	Stream  string
	Subject string
	Durable string
	// MaxDeliver is how often a message is delivered; a Nak of the last delivery drops it.
	MaxDeliver int
	// AckWait is how long a receiver may take before a message is delivered again.
	AckWait time.Duration
	Batch   int // the most messages at a time
}

// Delivery is a received message. The receiver calls Ack, Term or Nak once. A receiver that calls
// none of them gets the message again after AckWait.
type Delivery struct {
	Entry
	Attempt int  // 1 for the first delivery
	Last    bool // Nak drops the message, so a receiver that wants to keep it must store it now

	msg jetstream.Msg
}

// Header returns a header of the message.
func (d *Delivery) Header(name string) string { return d.msg.Headers().Get(name) }

// Ack acknowledges the message. If the acknowledgement is lost, the message is delivered again.
func (d *Delivery) Ack() { _ = d.msg.Ack() }

// Term drops the message, which can never be processed. The receiver logs why before it calls Term,
// since nothing else keeps the message.
func (d *Delivery) Term() { _ = d.msg.Term() }

// Nak gives the message back, to be delivered again after delay.
func (d *Delivery) Nak(delay time.Duration) {
	if d.Last {
		d.Term()
		return
	}
	_ = d.msg.NakWithDelay(delay)
}

// heartbeatInterval is how often the server sends a heartbeat to a consumer. After two missing ones
// the consumer is set up again: the server of the cluster that had it may be dead.
const heartbeatInterval = 2 * time.Second

// The pauses before a consumer is set up again after an error.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Consume calls fn with the unfinished messages of the subject until ctx ends. It creates the
// stream and the consumer again where they are missing, and retries while the streams do not
// answer. fn is called with one batch after the other and not concurrently; it may keep the
// deliveries and finish them later. Consume returns nil when ctx has ended or the streams are
// closed.
func (s *Streams) Consume(ctx context.Context, c Consumer,
	fn func(context.Context, []Delivery)) error {
	if !s.firstUse.await(ctx) {
		return nil
	}
	backoff := clock.Backoff{Min: minPause, Max: maxPause}
	loop := outage.Loop{Log: s.config.Log, Name: "consumer of " + c.Stream}
	for {
		err := s.consume(ctx, &c, func(batch []Delivery) {
			backoff.Reset()
			fn(ctx, batch)
		})
		if ctx.Err() != nil || s.conn.IsClosed() {
			return nil
		}
		missing := isMissing(err) || errors.Is(err, jetstream.ErrStreamNotFound)
		spec := s.specByName(c.Stream)
		if missing && spec != nil {
			err = s.provision(ctx, spec)
		}
		loop.Report(ctx, wrapError("stream.consume", "", err))
		backoff.Sleep(ctx)
	}
}

// consume waits for a message, fetches those that are available too, and calls fn with all of them.
// It returns nil when ctx ends, and otherwise the error for which the consumer has to be set up
// again.
func (s *Streams) consume(ctx context.Context, c *Consumer, fn func([]Delivery)) error {
	config := jetstream.ConsumerConfig{
		Durable:       c.Durable,
		FilterSubject: c.Subject,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.AckWait,
		MaxDeliver:    -1, // the receiver decides about the last delivery, also after a crash
		MaxAckPending: max(1000, c.Batch),
	}
	report := s.config.Monitor.Begin()
	var consumer jetstream.Consumer
	err := s.retryUntilAnswered(ctx, func(ctx context.Context) (err error) {
		consumer, err = s.js.CreateOrUpdateConsumer(ctx, c.Stream, config)
		return err
	})
	if s.reportResult(report, "stream.consume", err) != nil {
		return err
	}
	for ctx.Err() == nil { // a message that is requested later would reach no receiver
		first, err := nextMessage(ctx, consumer)
		if errors.Is(err, nats.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		batch, err := takeAvailable([]jetstream.Msg{first}, consumer, c.Batch-1)
		if err != nil {
			return err
		}
		deliveries, err := c.deliveries(batch)
		if err != nil {
			return err
		}
		fn(deliveries)
	}
	return nil
}

// nextMessage waits for a message until ctx ends. The library gets a context without a deadline,
// since it refuses heartbeats that are longer than the time to the deadline.
func nextMessage(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return consumer.Next(jetstream.FetchContext(within),
		jetstream.FetchHeartbeat(heartbeatInterval))
}

// takeAvailable adds up to n messages that are available without waiting.
func takeAvailable(batch []jetstream.Msg, consumer jetstream.Consumer, n int) ([]jetstream.Msg,
	error) {
	if n < 1 {
		return batch, nil
	}
	more, err := consumer.FetchNoWait(n)
	if err != nil {
		return nil, err
	}
	for msg := range more.Messages() {
		batch = append(batch, msg)
	}
	return batch, nil // the next wait meets the error that ended the fetch, if there was one
}

// deliveries converts messages of the library.
func (c *Consumer) deliveries(batch []jetstream.Msg) ([]Delivery, error) {
	all := make([]Delivery, len(batch))
	for i, msg := range batch {
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		attempt := int(meta.NumDelivered)
		all[i] = Delivery{Entry: entryOfDelivery(msg, meta), Attempt: attempt,
			Last: attempt >= c.MaxDeliver, msg: msg}
	}
	return all, nil
}
