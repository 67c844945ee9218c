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

// Consumer says what is consumed and how. Nodes with the same Durable share the work.
type Consumer struct {
	Stream  string
	Subject string
	Durable string
	// hand-outs of one message after which it is settled, one way or the other
	MaxDeliver int
	AckWait    time.Duration // a message that is not settled within it is handed out again
	Batch      int           // most messages at a time
}

// Delivery is a message that is to be settled: by Ack, Drop or Nak.
type Delivery struct {
	Entry
	Attempt int  // 1 for the first hand-out
	Last    bool // Nak drops it: whoever wants to keep it somewhere does so now

	msg jetstream.Msg
}

// Header gives a header of the message.
func (d *Delivery) Header(name string) string { return d.msg.Headers().Get(name) }

// Ack says that the message is done with. If that does not reach the server, it is handed out
// again.
func (d *Delivery) Ack() { _ = d.msg.Ack() }

// Term says that the message can never be done with.
func (d *Delivery) Term() { _ = d.msg.Term() }

// Nak asks for the message again after a while.
func (d *Delivery) Nak(delay time.Duration) {
	if d.Last {
		d.Term()
		return
	}
	_ = d.msg.NakWithDelay(delay)
}

// heartbeatInterval is how often a consumer of the server shows that it is there. After two that
// are missing it is looked for again: the server of a cluster that had it may be dead.
const heartbeatInterval = 2 * time.Second

// The pauses before a consumer is set up again after trouble.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Consume hands out what the subject has that is not settled yet, until ctx is done. The stream and
// the consumer are made again where they are gone; while the streams are away it waits for them.
func (s *Streams) Consume(ctx context.Context, c Consumer,
	fn func(context.Context, []Delivery)) error {
	pause, loop := minPause, outage.Loop{Log: s.config.Log, Name: "consumer of " + c.Stream}
	for {
		err := s.consume(ctx, &c, func(batch []Delivery) {
			pause = minPause
			fn(ctx, batch)
		})
		if ctx.Err() != nil || s.conn.IsClosed() {
			return nil
		}
		if isMissing(err) || errors.Is(err, jetstream.ErrStreamNotFound) {
			if spec := s.specByName(c.Stream); spec != nil && s.provision(ctx, spec) == nil {
				err = nil
			}
		}
		loop.Report(ctx, wrapError("stream.consume", "", err))
		clock.Sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// consume waits for a message, takes what else is there, and hands all of it out.
func (s *Streams) consume(ctx context.Context, c *Consumer, fn func([]Delivery)) error {
	// The server hands out without end: only here it is known what the last time was, also after a
	// crash.
	config := jetstream.ConsumerConfig{Durable: c.Durable, FilterSubject: c.Subject,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.AckWait, MaxDeliver: -1,
		MaxAckPending: max(1000, c.Batch)}
	report := s.config.Part.Begin()
	var consumer jetstream.Consumer
	err := s.retryUntilAnswered(ctx, func(ctx context.Context) (err error) {
		consumer, err = s.js.CreateOrUpdateConsumer(ctx, c.Stream, config)
		return err
	})
	if s.reportResult(report, "stream.consume", err) != nil {
		return err
	}
	for ctx.Err() == nil { // what is asked for after the end would be handed to nobody
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

// nextMessage waits for a message until ctx is done. The library gets no deadline: near one it
// would refuse the heartbeat.
func nextMessage(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return consumer.Next(jetstream.FetchContext(within),
		jetstream.FetchHeartbeat(heartbeatInterval))
}

// takeAvailable adds up to n messages that are there at the moment.
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
	return batch, nil // what cut it short is met again by the next wait
}

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
