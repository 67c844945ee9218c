package images

import (
	"context"
	"errors"
	"strconv"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
)

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
	return m.metrics.send(func() error { return m.Queue.Send(ctx, out) })
}
