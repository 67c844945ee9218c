package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Dead letters of all contracts. That one was replayed is a record beside it, which is attached to
// the change that replays it, so both are stored or neither is.

// deadLetterRoutes are the routes of dead letters.
func (a *API) deadLetterRoutes() []route {
	const all = apiPrefix + "/dead-letters"
	return []route{
		{method: "GET", pattern: all, action: "dead_letter.list", handle: a.listDeadLetters,
			query: httpapi.PageQuery("contract", "queue", "fingerprint", "from", "to")},
		{method: "POST", pattern: all + "/{id}/replay", action: "dead_letter.replay",
			handle: a.replayDeadLetter, target: letterTarget, body: true},
		{method: "DELETE", pattern: all + "/{id}", action: "dead_letter.discard",
			handle: a.discardDeadLetter, target: letterTarget},
	}
}

// letterTarget names the dead letter of the path for the audit.
func letterTarget(c *httpapi.Call) string { return "dead_letter:" + c.PathValue("id") }

// letterFilter selects dead letters. Empty members select all.
type letterFilter struct {
	sorts              []string // of jobs
	queue, fingerprint string
	from, to           time.Time
}

// matches reports whether a dead letter is selected. from is inclusive, to is not (G-AD-05).
func (f *letterFilter) matches(l *job.DeadLetter) bool {
	return (f.queue == "" || l.Job.Queue == f.queue) &&
		(f.from.IsZero() || !l.CreatedAt.Before(f.from)) &&
		(f.to.IsZero() || l.CreatedAt.Before(f.to)) &&
		(f.fingerprint == "" || fingerprint(l) == f.fingerprint)
}

// readLetterFilter reads the filters of a request.
func (a *API) readLetterFilter(c *httpapi.Call) (f letterFilter, err error) {
	name := ""
	if err := firstError(readText(c, "contract", &name), readText(c, "queue", &f.queue),
		readText(c, "fingerprint", &f.fingerprint), readTime(c, "from", &f.from),
		readTime(c, "to", &f.to)); err != nil {
		return f, err
	}
	known := make([]string, len(a.Contracts))
	for i, one := range a.Contracts {
		known[i] = one.Name
		if name == "" || name == one.Name {
			f.sorts = append(f.sorts, replayable(one)...)
		}
	}
	if name != "" && !slices.Contains(known, name) {
		return f, invalid("contract must be one of " + strings.Join(known, ", "))
	}
	return f, nil
}

// replayable returns the sorts of jobs of a contract that leave dead letters.
func replayable(c *contract.Contract) (sorts []string) {
	for i := range c.Operators {
		if c.Operators[i].Replay != nil {
			sorts = append(sorts, c.Operators[i].Jobs)
		}
	}
	return sorts
}

// What one request reads at most: a filter may match few of many dead letters. They are read in
// batches, as each holds the bodies of its job.
const (
	maxLettersSearched = 2000
	letterBatch        = 100
)

var letterPages = newPages(httpapi.Named("dead-letters", httpapi.ByNumber))

// listDeadLetters is GET /admin/v1/dead-letters (AD-050): the oldest first. A page may be shorter
// than its limit, even empty, while there is a next one.
func (a *API) listDeadLetters(c *httpapi.Call) error {
	f, err := a.readLetterFilter(c)
	if err != nil {
		return err
	}
	limit, after, err := letterPages.Read(c)
	if err != nil {
		return err
	}
	found, last, err := a.findDeadLetters(c.Context(), &f, after, limit)
	if err != nil {
		return err
	}
	replays, err := a.replaysOf(c.Context(), found)
	if err != nil {
		return err
	}
	next := ""
	if last > 0 {
		next = letterPages.Cursor.Format(last)
	}
	o := newList(len(found), next, func(i int, o *strictjson.Object) {
		writeDeadLetter(o, &found[i], replays[i])
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// findDeadLetters returns up to limit dead letters with an ID above after, and after which ID the
// next page begins, 0 if there is none.
func (a *API) findDeadLetters(ctx context.Context, f *letterFilter, after int64,
	limit int) (found []job.DeadLetter, last int64, err error) {
	for searched := 0; searched < maxLettersSearched; searched += letterBatch {
		batch, err := a.nextDeadLetters(ctx, f.sorts, after)
		if err != nil {
			return nil, 0, err
		}
		for i := range batch {
			if f.matches(&batch[i]) {
				if len(found) == limit {
					return found, after, nil
				}
				found = append(found, batch[i])
			}
			after = batch[i].ID
		}
		if len(batch) < letterBatch {
			return found, 0, nil
		}
	}
	return found, after, nil
}

// nextDeadLetters returns the next batch of dead letters of all sorts with an ID above after.
func (a *API) nextDeadLetters(ctx context.Context, sorts []string,
	after int64) (all []job.DeadLetter, err error) {
	for _, jobs := range sorts {
		some, err := a.Engine.DeadLetters(ctx, jobs, after, letterBatch)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(x, y job.DeadLetter) int { return cmp.Compare(x.ID, y.ID) })
	return all[:min(len(all), letterBatch)], nil
}

// replayKind is the kind of the records of replays; their key is the ID of the dead letter.
const replayKind = "dead_letter.replay"

// replay is when a dead letter was last replayed, and which job ran then.
type replay struct {
	At time.Time `json:"at"`
	As int64     `json:"as"`
}

func replayKey(l *job.DeadLetter) string { return strconv.FormatInt(l.ID, 10) }

// replaysOf returns the replays of dead letters, nil for each that was not replayed.
func (a *API) replaysOf(ctx context.Context, letters []job.DeadLetter) (all []*replay, err error) {
	err = a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		all = make([]*replay, len(letters))
		for i := range letters {
			if all[i], err = readBody[replay](r, replayKind, replayKey(&letters[i])); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

// writeDeadLetter writes the members of a dead letter.
func writeDeadLetter(o *strictjson.Object, l *job.DeadLetter, r *replay) {
	kind, text := failureOf(l)
	o.Int("id", l.ID)
	o.Text("fingerprint", fingerprint(l))
	o.Text("contract", l.Job.ID.Contract)
	o.Text("queue", l.Job.Queue)
	o.Int("number", l.Job.Seq)
	o.Text("job_id", l.Job.ID.Key)
	o.Int("attempts", int64(l.Job.Attempts))
	o.Text("error_type", kind)
	o.Optional("error", strings.ToValidUTF8(text, "\uFFFD"))
	o.Time("at", l.CreatedAt)
	if r == nil {
		o.Null("replayed_at")
		o.Null("replayed_as")
		return
	}
	o.Time("replayed_at", r.At)
	o.Int("replayed_as", r.As)
}

// pathDeadLetter loads the dead letter of the path. IDs are unique over all contracts.
func (a *API) pathDeadLetter(c *httpapi.Call) (l job.DeadLetter, err error) {
	id, err := strconv.ParseInt(c.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return l, errNoDeadLetter
	}
	for _, one := range a.Contracts {
		for _, jobs := range replayable(one) {
			l, err = a.Engine.DeadLetter(c.Context(), jobs, id)
			if !job.IsKind(err, job.NotFound) {
				return l, err
			}
		}
	}
	return l, errNoDeadLetter
}

var (
	// errNoDeadLetter answers an ID that no dead letter has.
	errNoDeadLetter = &job.Error{Kind: job.NotFound, Op: "admin.dead_letter",
		Msg: "there is no such dead letter"}
	// errReplayed answers a second replay that does not say that it is one (G-AD-14).
	errReplayed = &job.Error{Kind: job.Conflict, Op: "admin.dead_letter",
		Msg: "the dead letter was replayed already; again: true replays it once more"}
)

// replayDeadLetter is POST /admin/v1/dead-letters/{id}/replay: it answers the job that runs then
// (AD-051).
func (a *API) replayDeadLetter(c *httpapi.Call) error {
	body, err := readMembers(c, "again")
	if err != nil {
		return err
	}
	again := false
	for _, value := range strictjson.Members(body) {
		if again, err = strictjson.Bool(value); err != nil {
			return invalid("again must be true or false")
		}
	}
	l, err := a.pathDeadLetter(c)
	if err != nil {
		return err
	}
	o := a.operatorOf(l.Job.ID.Contract)
	ctx := engine.Attach(c.Context(), func(w engine.RecordWriter, _, after *job.Job) error {
		return a.recordReplay(w, c, &l, after, again)
	})
	j, err := o.Replay(ctx, &l.Job)
	if errors.Is(err, errReplayed) {
		return errReplayed
	}
	if err != nil {
		return explain(o, err)
	}
	return a.sendJob(c, http.StatusOK, l.Job.Seq, j)
}

// recordReplay notes in the transaction of a replay that the dead letter was replayed, with the
// entry of the audit.
func (a *API) recordReplay(w engine.RecordWriter, c *httpapi.Call, l *job.DeadLetter,
	made *job.Job, again bool) error {
	before, err := readBody[replay](w, replayKind, replayKey(l))
	if err != nil {
		return err
	}
	if before != nil && !again {
		return errReplayed
	}
	after := replay{At: w.Now(), As: made.Seq}
	if err := putBody(w, job.Record{Kind: replayKind, Key: replayKey(l)}, after); err != nil {
		return err
	}
	if before == nil {
		return a.record(w, c, nil, after)
	}
	return a.record(w, c, before, after)
}

// discardDeadLetter is DELETE /admin/v1/dead-letters/{id} (AD-051).
func (a *API) discardDeadLetter(c *httpapi.Call) error {
	l, err := a.pathDeadLetter(c)
	if err != nil {
		return err
	}
	if err := a.Engine.DiscardDeadLetter(c.Context(), l.Job.ID.Contract, l.ID,
		func(w engine.RecordWriter, l *job.DeadLetter) error {
			if err := w.DeleteRecords(replayKind, replayKey(l)); err != nil {
				return err
			}
			return a.record(w, c, stateOf(&l.Job), nil)
		}); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}
