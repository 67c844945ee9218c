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

// Message is what is published.
type Message struct {
	Subject string
	ID      string // the same id within the window is the same message; empty: never the same
	// of those with the ID and Subject only the first is stored, whatever the others say
	FirstOnly bool
	Data      []byte
	Header    map[string]string
}

// Many messages of one stream travel as batches: the server syncs a batch once. Below fewest that
// costs more than it saves; above most and heaviest the server refuses.
const (
	minBatch      = 16
	maxBatch      = 1000
	maxBatchBytes = 16 << 20
)

// Publish stores messages and returns their offsets when all are on stable storage. Those of one
// stream keep their order. After an error some may be stored: publish them again under their ids.
//
// A message whose id the stream knows is not stored twice, and gets the offset it has. Where
// something else stands under that id, or nothing any more, as after a purge, it is stored.
func (s *Streams) Publish(ctx context.Context, messages []Message) ([]uint64, error) {
	groups := map[*Spec][]int{}
	for i := range messages {
		spec := s.specForSubject(messages[i].Subject)
		if spec == nil {
			return nil, &job.Error{Kind: job.Invalid, Op: "stream.publish",
				Msg: "no stream takes the subject " + strconv.Quote(messages[i].Subject)}
		}
		groups[spec] = append(groups[spec], i)
	}
	report := s.config.Part.Begin()
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

// batchLength is how many of the members one batch can hold.
func batchLength(messages []Message, members []int) int {
	bytes := 0
	for n, i := range members {
		if bytes += len(messages[i].Data); (n > 0 && bytes > maxBatchBytes) || n == maxBatch {
			return n
		}
	}
	return len(members)
}

// publishTo writes the members of one stream, and again if there is no answer; those without an id
// could be stored twice by that, and are not.
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

// publishOnce writes them together if they are many. A batch that the server refuses, as it does
// when it knows one of the ids, is stored one by one.
func (s *Streams) publishOnce(ctx context.Context, spec *Spec, messages []Message, members []int,
	offsets []uint64) error {
	if len(members) >= minBatch {
		last, err := s.publishBatch(ctx, messages, members)
		if err == nil {
			for i, m := range members {
				offsets[m] = last - uint64(len(members)-1-i)
			}
			return nil
		}
		if k := errorKind(err); k != job.Internal && !isMissing(err) {
			return err
		}
	}
	return s.retryRecreated(ctx, spec, func() error {
		return s.publishEach(ctx, spec, messages, members, offsets)
	})
}

// publishBatch stores messages as one batch and gives the offset of the last one.
func (s *Streams) publishBatch(ctx context.Context, messages []Message, members []int) (uint64,
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

// contextCause gives the reason of a context that is done in place of what a library makes of it.
func (s *Streams) contextCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// publishEach stores messages one by one, all under way at a time.
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
		if err == nil && ack.Duplicate {
			ack, err = s.ensureDistinct(ctx, spec, &messages[m], ack)
		}
		if err != nil {
			return err
		}
		offsets[m] = ack.Sequence
	}
	return nil
}

// ensureDistinct looks whether what the stream has under the message's id is the message; if not it
// is stored under an id that is made of the old one, so that this too happens once.
func (s *Streams) ensureDistinct(ctx context.Context, spec *Spec, m *Message,
	ack *jetstream.PubAck) (*jetstream.PubAck, error) {
	id := m.ID
	for ack.Duplicate {
		stored, err := s.Get(ctx, spec.Name, ack.Sequence)
		switch {
		case err == nil && stored.Subject == m.Subject &&
			(m.FirstOnly || bytes.Equal(stored.Data, m.Data)):
			return ack, nil
		case err != nil && !job.IsKind(err, job.NotFound):
			return nil, err
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

// send does not leave trying again to the library, which has a timer for each message and loses
// their order.
func (s *Streams) send(m *Message, id string) (jetstream.PubAckFuture, error) {
	return s.js.PublishMsgAsync(m.natsMessage(id), jetstream.WithStallWait(answerTimeout),
		jetstream.WithRetryAttempts(0))
}

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
