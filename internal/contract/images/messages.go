package images

import (
	"context"
	"errors"
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

// A job comes to a worker in these steps. Only the last one decides: in between a message may be
// lost, repeated or late.
//
//	transaction   the job can be claimed; messageBody puts a message into the outbox
//	Deliver       sends it to the queue, a stream or SQS, when the transaction is committed
//	runReceiver   receives it, and waits until a worker is idle
//	claim         claims the job by its id, and acknowledges the message unless the store is away
//
// A message that is lost is sent again by the sweep (G-IP-16). One that was received by a node
// that died is delivered again by the queue. One that comes twice finds a job that is not
// claimable (IP-004).
//
// The outbox also carries what the end of a job means for other jobs of its file (applyChange).

// The stream of the messages, if they are not sent through SQS.
const (
	messagesStream   = "IMAGES_MESSAGES"
	messagesSubject  = "images.messages"
	messagesDurable  = "millrace-images"
	messageRetention = 24 * time.Hour // the sweep sends lost messages again
)

// Streams returns the streams that the contract publishes to.
func Streams() []stream.Spec {
	return []stream.Spec{{Name: messagesStream, Subjects: []string{messagesSubject},
		MaxAge: messageRetention}}
}

// Embedded is the message queue in the embedded streams. All nodes share its durable consumer, so
// each message goes to one of them.
func Embedded(s *stream.Streams, log *slog.Logger) *message.Subject {
	return &message.Subject{Log: log, Streams: s, Stream: messagesStream, Subject: messagesSubject,
		Durable: messagesDurable}
}

// The members of a message of the outbox. Each message has one.
const (
	kindProposal     = "message" // for the queue, to be sent as it is
	kindVariantsMade = "made"    // the id of a file with new variants
	kindDeleted      = "deleted" // the id of a deleted file
	kindFailed       = "failed"  // the id of the file of a failed job
)

// messageBody is the outbox message for a change of a job: it can be claimed (IP-003), or its file
// has changed. It is nil for all other changes.
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

// Deliver processes messages of the outbox: it sends proposals to the queue and applies the effects
// of finished jobs. It may be called with the same messages again, which changes nothing. The id of
// a message consists of its job and the time of the change, by which a stream drops one that is
// delivered twice in a short time. An error holds up all later messages until the delivery has
// succeeded.
func (m *Images) Deliver(ctx context.Context, messages []job.Message) error {
	var out []message.Message
	for i := range messages {
		msg := &messages[i]
		for name, value := range strictjson.Members(msg.Body) {
			if kind := string(name); kind != kindProposal {
				fileID, _ := strictjson.String(value)
				if err := m.applyChange(ctx, kind, fileID, msg.JobID.Key); err != nil {
					return err
				}
				continue
			}
			changedAt := strconv.FormatInt(msg.At.UnixMicro(), 10)
			out = append(out, message.Message{ID: msg.JobID.Key + "/" + changedAt, Body: value})
		}
	}
	return m.send(ctx, out)
}

// applyChange applies the effect that a finished job has on other jobs of its file. A kind that is
// not known, perhaps of a later version, is ignored.
func (m *Images) applyChange(ctx context.Context, kind, fileID, jobID string) error {
	switch kind {
	case kindVariantsMade, kindDeleted:
		return m.onFileChanged(ctx, fileID, jobID, kind == kindDeleted)
	case kindFailed:
		// The last attempt may have written objects after the file was deleted, and no other
		// attempt will remove them.
		err := m.ensureNotDeleted(ctx, fileID)
		if errors.Is(err, errFileGone) {
			return nil
		}
		return err
	}
	return nil
}

// send sends messages to the queue and returns when all of them are stored there. None is no call.
func (m *Images) send(ctx context.Context, out []message.Message) error {
	if len(out) == 0 {
		return nil
	}
	return m.api.send(func() error { return m.Queue.Send(ctx, out) })
}

// sendMessages proposes jobs again. The messages have no id, so the queue does not drop them as
// duplicates. The job need not be claimable.
func (m *Images) sendMessages(ctx context.Context, jobs ...*job.Job) error {
	out := make([]message.Message, len(jobs))
	for i, j := range jobs {
		out[i] = message.Message{Body: proposalMessage(j)}
	}
	return m.send(ctx, out)
}

// onFileChanged follows the completion of a job of a file: the jobs of a deleted file that wait for
// their next attempt are canceled (G-IP-07), and the file is purged from the CDN.
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

// cancelWaiting cancels the jobs of a deleted file that wait for their next attempt. A job that
// was claimed meanwhile finds the deletion itself. Conflict and NotFound mean that there is
// nothing left to cancel.
func (m *Images) cancelWaiting(ctx context.Context, fileID string) error {
	jobs, err := m.Engine.List(ctx, store.Filter{Contract: Name, Owner: fileID, NewestFirst: true,
		States: statesByStatus[string(retryable)]})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.Queue != processFile {
			continue
		}
		err := m.worker.query(opUpdate, func() error {
			_, err := m.Engine.Change(ctx, j.ID, job.Canceled, func(j *job.Job, _ time.Time) error {
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

// runReceiver receives messages from the queue and passes each to an idle worker. The channel has
// no buffer: a node holds one message beyond what its workers process, so the others stay in the
// queue for other nodes.
func (m *Images) runReceiver(ctx context.Context) {
	m.Queue.Receive(ctx, func(ctx context.Context, d message.Delivery) {
		select {
		case m.proposals <- d:
		case <-ctx.Done():
			d.Nak()
		}
	})
}

// claim is the claim of a worker: it waits for a message and claims the job that the message
// proposes (IP-042). The first claim of each worker takes the oldest ready job instead: the
// message that a killed node had received is delivered again only after a while. It returns no job
// when the time or ctx is over, and at most one otherwise.
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

// claimOldest claims the first job in claim order, if one is ready. Like claimProposed it does not
// stop with ctx, so that no claim is lost in between.
func (m *Images) claimOldest(ctx context.Context, req engine.ClaimRequest) (jobs []*job.Job,
	err error) {
	req.Wait = 0
	err = m.worker.query(opClaim, func() (err error) {
		jobs, err = m.Engine.Claim(context.WithoutCancel(ctx), req)
		return err
	})
	return jobs, err
}

// claimProposed claims the job of a message. It acknowledges the message also if the job cannot be
// claimed: then it has finished, has another worker, or waits for its retry, which proposes it
// again (IP-038, IP-046). Only in an outage of the store the message has to come again. The result
// is nil without an error if there is nothing to do.
func (m *Images) claimProposed(ctx context.Context, d message.Delivery, worker string) (j *job.Job,
	err error) {
	id, ok := proposedJob(d.Body)
	if !ok {
		m.Log.Warn("a message that proposes no job is ignored")
		d.Ack()
		return nil, nil
	}
	// A node that stops must still see the result of its claim.
	claiming := context.WithoutCancel(ctx)
	err = m.worker.query(opClaim, func() (err error) {
		j, err = m.Engine.ClaimJob(claiming, id, worker)
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
