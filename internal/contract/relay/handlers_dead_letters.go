package relay

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The producers of a queue see its dead letters and replay them (RT-004). A dead letter has a
// number, as several of them may be of one id: a job that is enqueued again may be given up again.

var deadLetterPages = httpapi.Pages[int64]{DefaultLimit: 20, MaxLimit: 100,
	LimitText: "limit must be a whole number from 1 to %d",
	Cursor:    httpapi.Named("dead-letters", httpapi.ByNumber)}

// maxDeadLetterBytes bounds the payloads and states of a page. A page ends with the dead letter
// that goes beyond it.
const maxDeadLetterBytes = 16 << 20

// GET /v2/queues/{queue}/dead-letters?limit=&cursor= lists the oldest first, with those that were
// replayed.
func (r *Relay) listDeadLetters(c *httpapi.Call) error {
	limit, after, err := deadLetterPages.Read(c)
	if job.IsKind(err, job.Invalid) { // a parameter that is wrong is 400 (G-RL-07)
		return malformed("%s", r.errors.Answer(err).Detail)
	}
	if err != nil {
		return err
	}
	found, more, err := r.deadLetters(c, limit, after)
	if err != nil {
		return err
	}
	next := ""
	if more {
		next = deadLetterPages.Cursor.Format(found[len(found)-1].ID)
	}
	return c.SendItems(len(found), next, func(i int, o *strictjson.Object) {
		appendDeadLetter(o, &found[i])
	})
}

// deadLetters reads up to limit dead letters of the queue in the path, and reports whether there
// may be more. They are loaded one by one, as each may be as large as a request.
func (r *Relay) deadLetters(c *httpapi.Call, limit int, after int64) (found []job.DeadLetter,
	more bool, err error) {
	lists, err := r.Engine.DeadLetters(c.Context(), store.DeadLetterSelector{WithoutJobs: true,
		JobType: Name, Queue: c.PathValue("queue"), After: after, Limit: limit + 1})
	if err != nil {
		return nil, false, err
	}
	size := 0
	for _, listed := range lists[0] {
		if len(found) == limit || size > maxDeadLetterBytes {
			return found, true, nil
		}
		loaded, err := r.Engine.DeadLettersByID(c.Context(), listed.ID)
		if err != nil {
			return nil, false, err
		}
		for _, l := range loaded { // none if it was discarded meanwhile
			size += len(l.Job.Payload) + len(l.Job.Progress)
			found = append(found, l)
		}
	}
	return found, false, nil
}

// appendDeadLetter writes the members of a dead letter. Payload and state are as the job had them.
func appendDeadLetter(o *strictjson.Object, l *job.DeadLetter) {
	o.Int("id", l.ID)
	o.Text("queue", l.Job.Queue)
	o.Text("job_id", l.Job.ID.Key)
	o.Int("attempts", int64(l.Job.Attempts))
	_, text := l.Failure()
	o.Text("error", strings.ToValidUTF8(text, "\uFFFD"))
	o.Raw("payload", appendRaw(nil, l.Job.Payload))
	o.Raw("state", appendRaw(nil, l.Job.Progress))
	o.Time("failed_at", l.CreatedAt)
	o.Time("replayed_at", l.ReplayedAt)
}

// POST /v2/queues/{queue}/dead-letters/{id}/replay is the replay of operators (AD-051): it enqueues
// the job again and answers it. A dead letter is replayed once, unless the request says again.
func (r *Relay) replayDeadLetter(c *httpapi.Call) error {
	again, err := readAgain(c)
	if err != nil {
		return err
	}
	l, err := r.pathDeadLetter(c)
	if err != nil {
		return err
	}
	j, err := r.Engine.ReplayDeadLetter(c.Context(), engine.Replay{DeadLetter: l, Do: r.replayDead,
		Again: again})
	if err != nil {
		return err
	}
	c.Send(http.StatusAccepted, httpapi.JSON, appendJob(nil, j))
	return nil
}

// readAgain reads the body of a replay: nothing, or an object whose only member is again.
func readAgain(c *httpapi.Call) (again bool, err error) {
	body, err := c.OptionalJSONBody()
	if err != nil || len(body) == 0 {
		return false, err
	}
	if err := strictjson.Check(body); err != nil {
		return false, malformed("the body is not JSON: %v", err)
	}
	if strictjson.KindOf(body) != strictjson.KindObject {
		return false, malformed("the body must be an object")
	}
	for name, value := range strictjson.Members(body) {
		if string(name) != "again" {
			return false, malformed("unknown member %q; a replay takes again", name)
		}
		if again, err = strictjson.Bool(value); err != nil {
			return false, malformed("again must be true or false")
		}
	}
	return again, nil
}

// pathDeadLetter loads the dead letter in the path. That of another queue does not exist.
func (r *Relay) pathDeadLetter(c *httpapi.Call) (*job.DeadLetter, error) {
	id, ok := httpapi.ByNumber.Parse(c.PathValue("id"))
	if !ok {
		return nil, engine.ErrNoDeadLetter
	}
	found, err := r.Engine.DeadLettersByID(c.Context(), id)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].Job.ID.JobType != Name ||
		found[0].Job.Queue != c.PathValue("queue") {
		return nil, engine.ErrNoDeadLetter
	}
	return &found[0], nil
}
