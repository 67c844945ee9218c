package message

import (
	"context"
	"time"
)

// Message is what is sent.
type Message struct {
	// one that was sent a moment ago under the same id is the same, where the queue knows that;
	// empty: never
	ID   string
	Body []byte
}

// Delivery is a message that came. It is settled once, by Ack or Nak.
type Delivery struct {
	Body []byte
	Ack  func() // it is done with; if that does not reach the queue, it comes again
	Nak  func() // it is to come again
}

// Queue carries messages. Its verbs may be called at the same time.
type Queue interface {
	// Send returns when all messages are on stable storage. After an error some may be.
	Send(ctx context.Context, all []Message) error
	// Receive hands out one message at a time until ctx is done; the next one is asked for when
	// take returns. While the queue is away it waits for it.
	Receive(ctx context.Context, handle func(context.Context, Delivery))
	// Ping tells whether the queue answers.
	Ping(ctx context.Context) error
	// Close ends what the queue has open. Nothing is called after it.
	Close()
}

// visibilityTimeout is how long a message may be in somebody's hands before it comes again.
const visibilityTimeout = 30 * time.Second
