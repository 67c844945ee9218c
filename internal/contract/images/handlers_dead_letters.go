package images

import (
	"context"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// deadLetterRetention is how long dead letters are listed (G-IP-08).
const deadLetterRetention = 90 * 24 * time.Hour

// GET /images/v1/dead-letters lists failed jobs, without those that failed too long ago (G-IP-08).
// They are only hidden, as their file still needs them.
func (m *Images) listDeadLetters(c *httpapi.Call) error {
	p, err := readPage(c)
	if err != nil {
		return err
	}
	p.states, p.filter = statesByStatus[string(failed)], m.isDeadLetter
	jobs, err := m.selectPage(c, p)
	if err != nil {
		return err
	}
	replays, err := m.replaysOf(c.Context(), jobs)
	if err != nil {
		return err
	}
	return sendPage(c, p, jobs, func(o *strictjson.Object, j *job.Job) {
		appendDeadLetter(o, j, replays[j.Seq])
	})
}

// replayOf is when a dead letter was last replayed, and the id of the job that was made.
type replayOf struct {
	at time.Time
	as string
}

// replaysOf returns the replays of failed jobs, by their numbers.
func (m *Images) replaysOf(ctx context.Context, jobs []*job.Job) (map[int64]replayOf, error) {
	seqs := make([]int64, len(jobs))
	for i, j := range jobs {
		seqs[i] = j.Seq
	}
	deadLetters, err := m.Engine.DeadLettersOf(ctx, seqs)
	if err != nil {
		return nil, err
	}
	var made []int64
	for _, of := range deadLetters {
		made = append(made, of[0].ReplayedAs) // a job fails for good once
	}
	found, err := m.Engine.GetBySeqs(ctx, made, store.DefinitionOnly)
	if err != nil {
		return nil, err
	}
	replays := map[int64]replayOf{}
	for seq, of := range deadLetters {
		for _, j := range found {
			if j.Seq == of[0].ReplayedAs {
				replays[seq] = replayOf{of[0].ReplayedAt, j.ID.Key}
			}
		}
	}
	return replays, nil
}

// isDeadLetter reports whether a job is a dead letter.
func (m *Images) isDeadLetter(j *job.Job) bool {
	return j.State == failed && m.Now().Sub(j.FinishedAt) < deadLetterRetention
}

// POST /images/v1/dead-letters/{job_id}/replay creates a new job with the type and sizes of a dead
// letter, as failed is final (IP-022). The dead letter stays in the list.
func (m *Images) replayDeadLetter(c *httpapi.Call) error {
	ctx := c.Context()
	j, err := m.findJob(ctx, c.PathValue("job_id"))
	if err != nil {
		return err
	}
	if !m.isDeadLetter(j) {
		return &httpapi.CodedError{Code: codeNotReplayable,
			Detail: "the job is " + statusOf(j.State) + ", not a dead letter"}
	}
	made, err := m.replayDead(ctx, j)
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusAccepted, made)
}

// replayDead creates the job of a replay, and notes it with the dead letter. Jobs that failed under
// an older version have none.
func (m *Images) replayDead(ctx context.Context, j *job.Job) (*job.Job, error) {
	deadLetters, err := m.Engine.DeadLettersOf(ctx, []int64{j.Seq})
	if err != nil {
		return nil, err
	}
	if len(deadLetters[j.Seq]) == 0 {
		return m.rerun(ctx, j)
	}
	return m.Engine.ReplayDeadLetter(ctx, engine.Replay{DeadLetter: &deadLetters[j.Seq][0],
		Again: true,
		Do:    func(ctx context.Context, _ *job.Job) (*job.Job, error) { return m.rerun(ctx, j) }})
}
