package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The modes in which single messages fail, of those streams whose messages a consumer remembers.
const (
	modeDoubled = "doubled" // each comes once more, later and in another order
	modeStolen  = "stolen"  // half of them go to a receiver that does nothing with them
)

const (
	// copyHeader marks a message that is a copy, so that it is not copied again.
	copyHeader = "Torture-Copy"
	// maxCopies is how many messages are kept back until their copies are sent.
	maxCopies = 8
	// stealWait is how long a receiver waits for a message at a time.
	stealWait = 100 * time.Millisecond
)

// sharedConsumer is a consumer of a stream that nodes share.
type sharedConsumer struct {
	stream, durable, subject string
	pending                  int // messages that are not acknowledged
}

// disturbMessages has messages come twice, or not to their receivers, for the length of a fault.
func (s *services) disturbMessages(ctx context.Context, f fault) error {
	js, end, err := s.nats.connect()
	if err != nil {
		return err
	}
	defer end()
	consumers, err := sharedConsumers(ctx, js)
	if err != nil {
		return err
	}
	lasting, cancel := context.WithTimeout(ctx, f.Length)
	defer cancel()
	harm := doubleMessages
	if f.Mode == modeStolen {
		harm = stealMessages
	}
	var all sync.WaitGroup
	failures := make(chan error, len(consumers))
	for _, c := range consumers {
		all.Go(func() { failures <- harm(lasting, js, c) })
	}
	all.Wait()
	close(failures)
	for err := range failures {
		if err != nil && lasting.Err() == nil {
			return err
		}
	}
	return nil
}

// connect connects to the streams of the server, until end is called.
func (n *natsServer) connect(o ...nats.Option) (js jetstream.JetStream, end func(), err error) {
	conn, err := nats.Connect("nats://"+n.address, o...)
	if err != nil {
		return nil, nil, err
	}
	if js, err = jetstream.New(conn); err != nil {
		conn.Close()
	}
	return js, conn.Close, err
}

// sharedConsumers returns the durable consumers of all streams.
func sharedConsumers(ctx context.Context, js jetstream.JetStream) (all []sharedConsumer,
	err error) {
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			if c.Config.Durable != "" {
				all = append(all, sharedConsumer{name, c.Config.Durable, c.Config.FilterSubject,
					int(c.NumPending) + c.NumAckPending})
			}
		}
		if err := consumers.Err(); err != nil {
			return nil, err
		}
	}
	return all, names.Err()
}

// doubleMessages sends each new message once more until ctx ends: some of them together, the last
// one first, and without the id by which a stream would know them.
func doubleMessages(ctx context.Context, js jetstream.JetStream, c sharedConsumer) error {
	consumer, err := js.OrderedConsumer(ctx, c.stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.subject}, DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return err
	}
	var delayed []*nats.Msg
	for ctx.Err() == nil {
		msg, err := consumer.Next(jetstream.FetchMaxWait(stealWait))
		if err != nil || msg.Headers().Get(copyHeader) != "" {
			continue // none has come, or a copy
		}
		delayed = append(delayed, copyOf(msg))
		if len(delayed) == maxCopies {
			sendCopies(ctx, js, delayed)
			delayed = nil
		}
	}
	sendCopies(context.WithoutCancel(ctx), js, delayed)
	return nil
}

// copyOf returns a message that is the same but for its id.
func copyOf(msg jetstream.Msg) *nats.Msg {
	again := &nats.Msg{Subject: msg.Subject(), Data: msg.Data(), Header: nats.Header{}}
	for name, values := range msg.Headers() {
		again.Header[name] = values
	}
	again.Header.Del(jetstream.MsgIDHeader)
	again.Header.Set(copyHeader, "1")
	return again
}

// sendCopies sends messages in the reverse of their order. One that is not stored is no copy.
func sendCopies(ctx context.Context, js jetstream.JetStream, delayed []*nats.Msg) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, msg := range slices.Backward(delayed) {
		_, _ = js.PublishMsg(ctx, msg)
	}
}

// stealMessages receives messages in the place of the nodes until ctx ends. It acknowledges one and
// gives the next back, and each that nobody would send again.
func stealMessages(ctx context.Context, js jetstream.JetStream, c sharedConsumer) error {
	consumer, err := js.Consumer(ctx, c.stream, c.durable)
	if err != nil {
		return err
	}
	for n := 0; ctx.Err() == nil; n++ {
		msg, err := consumer.Next(jetstream.FetchMaxWait(stealWait))
		if err != nil {
			continue // none has come
		}
		if n%2 == 0 && msg.Headers().Get(directHeader) == "" {
			err = msg.Ack()
		} else {
			err = msg.Nak()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
