package images

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
)

// The stream of the messages, where they do not go through SQS.
const (
	messagesStream  = "IMAGES_MESSAGES"
	messagesSubject = "images.messages"
	messagesDurable = "millrace-images"
	// what is older was lost or is long done with: sweeps send it again
	messageRetention = 24 * time.Hour
)

// Streams are those the contract publishes to.
func Streams() []stream.Spec {
	return []stream.Spec{{Name: messagesStream, Subjects: []string{messagesSubject},
		MaxAge: messageRetention}}
}

// Embedded is the queue of messages in the streams.
func Embedded(s *stream.Streams, log *slog.Logger) *message.Subject {
	return &message.Subject{Log: log, Streams: s, Stream: messagesStream, Subject: messagesSubject,
		Durable: messagesDurable}
}

// What a message of the outbox is for.
const (
	kindProposal     = "message" // to be sent to them as it is
	kindVariantsMade = "made"    // the file that has new variants
	kindDeleted      = "deleted" // the file that is gone
	kindFailed       = "failed"  // the file of a job that failed
)

// messageBody is what a change of a job tells: that it can be claimed (IP-003), or that its file
// has changed.
func messageBody(j *job.Job, ev job.Event) []byte {
	o := strictjson.NewObject(make([]byte, 0, 256))
	switch ev.Cause {
	case job.Submitted, job.Due, job.Expired, job.Released:
		o.Raw(kindProposal, proposalMessage(j))
	case job.Succeeded:
		name := kindVariantsMade
		if j.Queue == deleteFile {
			name = kindDeleted
		}
		o.Text(name, j.Owner)
	case job.FailedForGood, job.ExpiredForGood, job.Canceled:
		if j.Queue != processFile {
			return nil
		}
		o.Text(kindFailed, j.Owner)
	default:
		return nil
	}
	return o.End()
}

// Deliver sends messages and draws what follows from a completed job. It may be given the same ones
// again: that changes nothing.
func (m *Images) Deliver(ctx context.Context, messages []job.Message) error {
	var out []message.Message
	for i := range messages {
		msg := &messages[i]
		for name, value := range strictjson.Members(msg.Body) {
			switch string(name) {
			case kindProposal:
				out = append(out, message.Message{ID: msg.JobID.Key + "/" +
					strconv.FormatInt(msg.At.UnixMicro(), 10), Body: value})
			case kindVariantsMade, kindDeleted:
				fileID, _ := strictjson.String(value)
				if err := m.onFileChanged(ctx, fileID, msg.JobID.Key,
					string(name) == kindDeleted); err != nil {
					return err
				}
			case kindFailed:
				// after the deletion nobody else would look for what its last attempt has written
				fileID, _ := strictjson.String(value)
				if err := m.ensureNotDeleted(ctx, fileID); err != nil && err != errFileGone {
					return err
				}
			}
		}
	}
	return m.send(ctx, out)
}

// send gives messages to the queue.
func (m *Images) send(ctx context.Context, out []message.Message) error {
	if len(out) == 0 {
		return nil
	}
	return m.api.send(func() error { return m.Queue.Send(ctx, out) })
}

// sendMessages proposes jobs once more: such a message is never taken for one that was sent before.
func (m *Images) sendMessages(ctx context.Context, jobs ...*job.Job) error {
	out := make([]message.Message, len(jobs))
	for i, j := range jobs {
		out[i] = message.Message{Body: proposalMessage(j)}
	}
	return m.send(ctx, out)
}

// onFileChanged is told of a file one of whose jobs is completed: what waits to be tried again for
// a file that is deleted is given up (G-IP-07), and the CDN forgets the file.
func (m *Images) onFileChanged(ctx context.Context, fileID, jobID string, deleted bool) error {
	if deleted {
		if err := m.cancelWaiting(ctx, fileID); err != nil {
			return err
		}
	}
	if m.CDN == nil {
		return nil
	}
	f, err := m.loadFile(ctx, fileID)
	if err != nil || f == nil {
		return err
	}
	return m.submitPurge(ctx, f, jobID)
}

// cancelWaiting ends the jobs of a deleted file that wait to be tried again. One that was claimed
// meanwhile finds out by itself.
func (m *Images) cancelWaiting(ctx context.Context, fileID string) error {
	jobs, err := m.engine.List(ctx, store.Filter{Contract: Name, Owner: fileID, NewestFirst: true,
		States: statesByStatus[retryable]})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.Queue != processFile {
			continue
		}
		err := m.worker.query(opUpdate, func() error {
			_, err := m.engine.Change(ctx, j.ID, job.Canceled, func(j *job.Job, _ time.Time) error {
				f := failure{Error: textDeleted, Type: typeDeleted, Failures: j.FailedAttempts}
				j.Failure = f.encode()
				return nil
			})
			return err
		})
		if err != nil && !job.IsKind(err, job.Conflict) && !job.IsKind(err, job.NotFound) {
			return err
		}
	}
	return nil
}

// runReceiver takes messages from the queue and hands each to a worker that is free.
func (m *Images) runReceiver(ctx context.Context) {
	m.Queue.Receive(ctx, func(ctx context.Context, d message.Delivery) {
		select {
		case m.proposals <- d:
		case <-ctx.Done():
			d.Nak()
		}
	})
}

// claim is how a worker gets a job: it waits for a message and claims the job that this proposes
// (IP-042). Only the first time it takes what has waited the longest: a message that was in the
// hands of a node that was killed comes again late.
func (m *Images) claim(ctx context.Context, req engine.ClaimRequest) ([]*job.Job, error) {
	if m.unclaimedWorkers.Add(-1) >= 0 {
		if jobs, err := m.claimOldest(ctx, req); err != nil || len(jobs) > 0 {
			return jobs, err
		}
	}
	timeout := time.NewTimer(req.Wait)
	defer timeout.Stop()
	for {
		select {
		case d := <-m.proposals:
			j, err := m.claimProposed(ctx, d, req.Worker)
			if err != nil {
				return nil, err
			}
			if j != nil {
				return []*job.Job{j}, nil
			}
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// claimOldest claims what is first in claim order, none where nothing waits.
func (m *Images) claimOldest(ctx context.Context, req engine.ClaimRequest) (jobs []*job.Job,
	err error) {
	req.Wait = 0
	err = m.worker.query(opClaim, func() (err error) {
		jobs, err = m.engine.Claim(context.WithoutCancel(ctx), req)
		return err
	})
	return jobs, err
}

// take claims the job of a message and settles the message, whatever the claim said: a job that
// cannot be claimed is over, somebody else's, or held back for a while, after which it is proposed
// again (IP-038, IP-046). Only while the store is away nobody knows.
func (m *Images) claimProposed(ctx context.Context, d message.Delivery, worker string) (j *job.Job,
	err error) {
	id, ok := proposedJob(d.Body)
	if !ok {
		m.Log.Warn("a message that proposes no job is passed over")
		d.Ack()
		return nil, nil
	}
	// a claim that was made is told of, also to a node that stops
	claiming := context.WithoutCancel(ctx)
	err = m.worker.query(opClaim, func() (err error) {
		j, err = m.engine.ClaimJob(claiming, id, worker)
		return err
	})
	switch {
	case err == nil:
		d.Ack()
		return j, nil
	case ctx.Err() == nil && (job.IsKind(err, job.Conflict) || job.IsKind(err, job.NotFound)):
		m.Log.Debug("a message proposes a job that cannot be claimed", telemetry.JobID, id.Key)
		d.Ack()
		return nil, nil
	case ctx.Err() != nil:
		d.Nak()
		return nil, nil
	}
	d.Nak()
	return nil, err
}
