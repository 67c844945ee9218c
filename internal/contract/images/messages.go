package images

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/engine"
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
//	claim         claims the job by its id, and acknowledges it unless the store is unavailable
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
	jobs, err := m.Engine.List(ctx, store.Filter{JobType: Name, Owner: fileID, NewestFirst: true,
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
// when the time or ctx has ended, and at most one otherwise.
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
	case err != nil && ctx.Err() != nil:
		d.Nak()
		return nil, nil
	case job.IsKind(err, job.Conflict), job.IsKind(err, job.NotFound):
		m.Log.Debug("a message proposes a job that cannot be claimed", telemetry.JobID, id.Key)
		d.Ack()
		return nil, nil
	case err != nil:
		d.Nak()
		return nil, err
	}
	d.Ack()
	return j, nil
}
