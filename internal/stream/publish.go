package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/job"
)

// Message is a message to publish. The outbox gives it the same ID whenever it publishes it, so a
// message that is published again after a crash is stored once.
type Message struct {
	Subject string
	// ID identifies the message: within the window one with the same id and data is stored once.
	// Empty means that the message is always stored.
	ID string
	// FirstOnly stores only the first message with the ID and Subject, whatever its data.
	FirstOnly bool
	Data      []byte
	Header    map[string]string
}

// Many messages of one stream are sent in batches, because the server syncs once for each batch.
// Below minBatch that costs more than it saves; above maxBatch and maxBatchBytes the server
// refuses.
const (
	minBatch      = 16
	maxBatch      = 1000
	maxBatchBytes = 16 << 20
)

// Publish stores messages and returns their offsets when all are on stable storage. Messages of one
// stream keep their order. After an error some may be stored; the caller publishes all of them
// again under their ids.
//
// A message whose id the stream knows is not stored twice, and gets the offset of the stored
// one. When the stored message has other data, or was removed by a purge, the new one is stored.
//
//	messages ──by stream──> groups, at the same time
//	  group ──minBatch or more──> one batch with one sync ──refused──> each by itself
//	        ──fewer─────────────> each by itself, sent without waiting in between
//
// Errors: Invalid for a subject of no stream, TooLarge for a message that the server does not take,
// Unavailable and those of the context otherwise.
func (s *Streams) Publish(ctx context.Context, messages []Message) ([]uint64, error) {
	groups := map[*Spec][]int{}
	for i := range messages {
		spec := s.specForSubject(messages[i].Subject)
		if spec == nil {
			return nil, &job.Error{Kind: job.Invalid, Op: "stream.publish",
				Msg: "no stream accepts the subject " + strconv.Quote(messages[i].Subject)}
		}
		groups[spec] = append(groups[spec], i)
	}
	if err := s.startForUse(ctx); err != nil {
		return nil, err
	}
	report := s.config.Monitor.Begin()
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	offsets := make([]uint64, len(messages))
	var wait sync.WaitGroup
	failures := make(chan error, len(groups))
	for spec, members := range groups {
		wait.Go(func() {
			for len(members) > 0 {
				n := batchLength(messages, members)
				if err := s.publishTo(ctx, spec, messages, members[:n], offsets); err != nil {
					failures <- err
					return
				}
				members = members[n:]
			}
		})
	}
	wait.Wait()
	close(failures)
	return offsets, s.reportResult(report, "stream.publish", <-failures)
}

// batchLength returns how many of the members fit in one batch: at least one, so that a single
// message above maxBatchBytes is still sent and the server says what is wrong with it.
func batchLength(messages []Message, members []int) int {
	bytes := 0
	for n, i := range members {
		bytes += len(messages[i].Data)
		if (n > 0 && bytes > maxBatchBytes) || n == maxBatch {
			return n
		}
	}
	return len(members)
}

// publishTo publishes the members of one stream, and again while there is no answer. Members
// without an id are sent once, since they could be stored twice.
func (s *Streams) publishTo(ctx context.Context, spec *Spec, messages []Message, members []int,
	offsets []uint64) error {
	publish := func(ctx context.Context) error {
		return s.publishOnce(ctx, spec, messages, members, offsets)
	}
	if slices.ContainsFunc(members, func(m int) bool { return messages[m].ID == "" }) {
		return publish(ctx)
	}
	return s.retryUntilAnsweredWithin(ctx, firstAnswerTimeout, publish)
}

// publishOnce publishes the members as a batch if they are many. The server refuses a batch with an
// id that it knows; its messages are then published one by one.
func (s *Streams) publishOnce(ctx context.Context, spec *Spec, messages []Message, members []int,
	offsets []uint64) error {
	if len(members) >= minBatch {
		err := s.publishBatch(ctx, messages, members, offsets)
		refused := err != nil && (errorKind(err) == job.Internal || isMissing(err))
		if !refused {
			return err
		}
	}
	return s.retryRecreated(ctx, spec, func() error {
		return s.publishEach(ctx, spec, messages, members, offsets)
	})
}

// publishBatch stores messages as one batch, all or none, and sets their offsets.
func (s *Streams) publishBatch(ctx context.Context, messages []Message, members []int,
	offsets []uint64) error {
	last, err := s.sendBatch(ctx, messages, members)
	if err != nil {
		return err
	}
	for i, m := range members {
		offsets[m] = last - uint64(len(members)-1-i)
	}
	return nil
}

// sendBatch sends a batch and returns the offset of its last message.
func (s *Streams) sendBatch(ctx context.Context, messages []Message, members []int) (uint64,
	error) {
	id := fmt.Sprintf("%s-%d", s.conn.NewInbox()[len("_INBOX."):], s.batches.Add(1))
	for i, m := range members {
		msg := messages[m].natsMessage(messages[m].ID)
		msg.Header.Set("Nats-Batch-Id", id)
		msg.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i < len(members)-1 {
			if err := s.conn.PublishMsg(msg); err != nil {
				return 0, err
			}
			continue
		}
		msg.Header.Set("Nats-Batch-Commit", "1")
		answer, err := s.conn.RequestMsgWithContext(ctx, msg)
		if err != nil {
			return 0, s.contextCause(ctx, err)
		}
		var ack struct {
			Seq   uint64              `json:"seq"`
			Count int                 `json:"count"`
			Error *jetstream.APIError `json:"error"`
		}
		switch err := json.Unmarshal(answer.Data, &ack); {
		case err != nil:
			return 0, err
		case ack.Error != nil:
			return 0, ack.Error
		case ack.Count != len(members):
			return 0, fmt.Errorf("the server stored %d of %d messages", ack.Count, len(members))
		}
		return ack.Seq, nil
	}
	return 0, nil
}

// contextCause returns the cause of a context that has ended in place of the error of the library.
func (s *Streams) contextCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// publishEach publishes messages one by one, without waiting for one before the next is sent. The
// order of the messages is kept, as the connection keeps it.
func (s *Streams) publishEach(ctx context.Context, spec *Spec, messages []Message, members []int,
	offsets []uint64) error {
	futures := make([]jetstream.PubAckFuture, len(members))
	for i, m := range members {
		var err error
		if futures[i], err = s.send(&messages[m], messages[m].ID); err != nil {
			return err
		}
	}
	for i, m := range members {
		ack, err := s.awaitAck(ctx, futures[i])
		if err != nil {
			return err
		}
		ack, err = s.ensureDistinct(ctx, spec, &messages[m], ack)
		if err != nil {
			return err
		}
		offsets[m] = ack.Sequence
	}
	return nil
}

// ensureDistinct checks that a message which the stream took for a duplicate is one. A message that
// differs from the stored one is published under an id derived from the old one, so that this too
// happens once.
func (s *Streams) ensureDistinct(ctx context.Context, spec *Spec, m *Message,
	ack *jetstream.PubAck) (*jetstream.PubAck, error) {
	id := m.ID
	for ack.Duplicate {
		stored, err := s.Get(ctx, spec.Name, ack.Sequence)
		purged := job.IsKind(err, job.NotFound)
		switch {
		case err != nil && !purged:
			return nil, err
		case !purged && m.isStoredAs(&stored):
			return ack, nil
		}
		id = fmt.Sprintf("%s.%d", id, ack.Sequence)
		future, err := s.send(m, id)
		if err != nil {
			return nil, err
		}
		if ack, err = s.awaitAck(ctx, future); err != nil {
			return nil, err
		}
	}
	return ack, nil
}

// isStoredAs reports whether an entry is the message.
func (m *Message) isStoredAs(e *Entry) bool {
	return e.Subject == m.Subject && (m.FirstOnly || bytes.Equal(e.Data, m.Data))
}

// send sends a message. It switches off the retries of the library, which has a timer for each
// message and loses their order.
func (s *Streams) send(m *Message, id string) (jetstream.PubAckFuture, error) {
	return s.js.PublishMsgAsync(m.natsMessage(id), jetstream.WithStallWait(answerTimeout),
		jetstream.WithRetryAttempts(0))
}

// awaitAck waits for the acknowledgement of a message.
func (s *Streams) awaitAck(ctx context.Context, future jetstream.PubAckFuture) (*jetstream.PubAck,
	error) {
	select {
	case ack := <-future.Ok():
		return ack, nil
	case err := <-future.Err():
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// natsMessage returns the message in the library's form, with an id by which the server finds
// duplicates; "" is none.
func (m *Message) natsMessage(id string) *nats.Msg {
	msg := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
	for name, value := range m.Header {
		msg.Header.Set(name, value)
	}
	if id != "" {
		msg.Header.Set(jetstream.MsgIDHeader, id)
	}
	return msg
}
