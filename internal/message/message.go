// Package message is a queue of small messages between processes: a subject of the streams, or a
// queue of SQS.
//
// A message is delivered at least once and in no particular order. It says only where to look: the
// receiver finds out from the database whether there is work to do. A message that is neither
// acknowledged nor given back is delivered again after visibilityTimeout.
//
// Errors are *job.Error: Unavailable when the queue cannot be reached, Aborted and Timeout when the
// caller's context ended.
package message

import (
	"context"
	"time"
)

// Message is a message to send.
type Message struct {
	// ID lets a stream drop a message that it stored a moment ago under the same id. SQS ignores
	// it. Empty means that no message is dropped.
	ID   string
	Body []byte
}

// Delivery is a received message. The receiver calls Ack or Nak once.
type Delivery struct {
	Body []byte
	Ack  func() // acknowledges the message; if that is lost, the message is delivered again
	Nak  func() // gives the message back, to be delivered again
}

// Queue carries messages. Its methods may be called concurrently.
type Queue interface {
	// Send returns when all messages are on stable storage. After an error some of them may be.
	Send(ctx context.Context, all []Message) error
	// Receive calls handle with one message at a time until ctx ends. It requests the next one
	// when handle has returned, and retries while the queue does not answer.
	Receive(ctx context.Context, handle func(context.Context, Delivery))
	// Ping checks that the queue answers.
	Ping(ctx context.Context) error
	// Close releases what the queue has open. No method may be called afterwards.
	Close()
}

// visibilityTimeout is how long a receiver may take before a message is delivered again.
const visibilityTimeout = 30 * time.Second
