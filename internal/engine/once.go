package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A request with an idempotency key may come again and makes one job. The key is the alias of the
// job, so that key and job are stored together or not at all, and a repeated request finds the job:
//
//	SubmitOnce ─▶ Submit ─┬─ stored
//	                      └─ Conflict: who has the alias?
//	                           a job of the same request  ─▶ that job
//	                           a job of another request   ─▶ ErrKeyReused
//	                           a job whose window ended   ─▶ a transaction takes the alias from it
//	                           no job: pruned since          and inserts
//
// The unique index of aliases decides between requests that come at the same time, on all nodes.
// FindSubmitted answers a repeated request before work is done for it that a submission needs.

// ErrKeyReused is wrapped by the Conflict of a request with an idempotency key that another request
// has used.
var ErrKeyReused = errors.New("the idempotency key was used for another request")

func errKeyReused(id job.ID) error {
	return &job.Error{Kind: job.Conflict, Op: "engine.submit", ID: id, Msg: ErrKeyReused.Error(),
		Err: ErrKeyReused}
}

// Once identifies a request of which the repetitions make no second job.
type Once struct {
	Alias  job.IdentityHash // of the job, see job.AliasOf; zero for a request that is not repeated
	Window time.Duration    // how long the job keeps the alias; 0 is as long as it is stored
	// IsSame reports whether a job was made by the same request. nil stands for true.
	IsSame func(*job.Job) bool
}

// find returns the job that has the alias, nil if there is none, and whether its window has ended.
func (o *Once) find(r reader) (j *job.Job, ended bool, err error) {
	found, err := r.Load(store.Selector{Aliases: []job.IdentityHash{o.Alias},
		Bodies: store.AllBodies})
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	ended = o.Window > 0 && r.Now().Sub(found[0].CreatedAt) >= o.Window
	return found[0], ended, nil
}

// check refuses a job of another request.
func (o *Once) check(j *job.Job) error {
	if o.IsSame != nil && !o.IsSame(j) {
		return errKeyReused(j.ID)
	}
	return nil
}

// FindSubmitted returns the job that the same request has made before, nil if there is none.
// It returns a Conflict that wraps ErrKeyReused if another request has made the job.
func (e *Engine) FindSubmitted(ctx context.Context, o Once) (found *job.Job, err error) {
	if o.Alias == (job.IdentityHash{}) {
		return nil, nil
	}
	err = e.view(ctx, func(r reader) error {
		j, ended, err := o.find(r)
		if err != nil || j == nil || ended {
			return err
		}
		found = j
		return o.check(j)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// SubmitOnce is Submit in mode Unique for a request that may be repeated. The first job of the
// batch gets the alias. SubmitOnce returns that job or, if the same request was served before, the
// one that was stored then: nothing of the batch is stored, and existed is true. If the answer to
// an earlier call with the same batch was lost, that may be the job of the batch itself. The job
// must not be changed.
//
// Errors: those of Submit. The Conflict of a key that another request has used wraps ErrKeyReused;
// any other one says that a job with the identity exists.
func (e *Engine) SubmitOnce(ctx context.Context, o Once, batch []Submission) (j *job.Job,
	existed bool, err error) {
	batch[0].Job.Alias = o.Alias
	r, err := e.Submit(ctx, Unique, batch)
	switch {
	case job.IsKind(err, job.Conflict) && o.Alias != (job.IdentityHash{}):
		return e.submitRepeated(ctx, o, batch)
	case err != nil:
		return nil, false, err
	}
	return r.Jobs[0], false, nil
}

// submitRepeated is SubmitOnce for a batch that conflicts with what is stored.
func (e *Engine) submitRepeated(ctx context.Context, o Once, batch []Submission) (j *job.Job,
	existed bool, err error) {
	if j, err = e.FindSubmitted(ctx, o); j != nil || err != nil {
		return j, j != nil, err
	}
	err = e.updateRetryingRaces(ctx, func(u *unit) (err error) {
		j, existed, err = u.submitOnce(&o, batch)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return j, existed, nil
}

// submitOnce returns the job that holds the alias if the same request has made it. Otherwise it
// stores the batch.
func (u *unit) submitOnce(o *Once, batch []Submission) (j *job.Job, existed bool, err error) {
	j, ended, err := o.find(u.tx)
	if err != nil {
		return nil, false, err
	}
	if j != nil && !ended {
		return j, true, o.check(j)
	}
	if ended {
		if err := u.freeAlias(j); err != nil {
			return nil, false, err
		}
	}
	jobs, existing, err := u.insert(batch)
	if err != nil {
		return nil, false, err
	}
	if len(existing) > 0 {
		return nil, false, u.explainConflict(existing[0], jobs[existing[0]])
	}
	u.about.after = jobs[0]
	return jobs[0], false, u.checkQueueSize()
}

// freeAlias takes the alias from a job. The job stays as it is otherwise.
func (u *unit) freeAlias(found *job.Job) error {
	locked, err := u.tx.Load(store.Selector{Aliases: []job.IdentityHash{found.Alias}, Lock: true})
	if err != nil {
		return err
	}
	if len(locked) == 0 || locked[0].Seq != found.Seq { // pruned, or freed by another request
		return errConcurrentInsert
	}
	locked[0].Alias = job.IdentityHash{}
	u.rewrite(locked[0])
	return u.writeJobsMoved() // before the insert, which needs the alias
}

// explainConflict returns the error of a job of a batch that was not inserted although no job had
// the alias a moment before. If the job's identity is not stored either, then another request has
// stored the alias since.
func (u *unit) explainConflict(index int, j *job.Job) error {
	if index == 0 {
		exists, err := u.tx.Exists(j.ID)
		if err != nil {
			return err
		}
		if !exists {
			return errConcurrentInsert
		}
	}
	return errExists(j.ID)
}

// OnceRecord is Once for a request that makes records instead of a job. What it made is remembered
// in a record of its own, written in the same change, for as long as the key is. A request without
// a key has a nil OnceRecord, which finds nothing and stores nothing.
type OnceRecord struct {
	Kind, Key, Owner string        // of the record
	Digest           string        // differs between requests with the same key
	Window           time.Duration // how long the key is remembered
}

// onceBody is the body of the record of a OnceRecord.
type onceBody struct {
	ID     string `json:"id"`
	Digest string `json:"request,omitempty"`
}

// Find returns the ID of what the same request has made before, "" if there is none. It returns a
// Conflict that wraps ErrKeyReused if another request came with the key.
func (o *OnceRecord) Find(r RecordReader) (id string, err error) {
	if o == nil {
		return "", nil
	}
	record, err := r.Record(o.Kind, o.Key)
	if err != nil || record == nil {
		return "", err
	}
	var body onceBody
	if err := json.Unmarshal(record.Body, &body); err != nil {
		return "", &job.Error{Op: "engine.once", Msg: "a stored record cannot be read", Err: err}
	}
	if body.Digest != o.Digest {
		return "", errKeyReused(job.ID{})
	}
	return body.ID, nil
}

// Store remembers the ID of what the request has made.
func (o *OnceRecord) Store(w RecordWriter, id string) error {
	if o == nil {
		return nil
	}
	body, err := json.Marshal(onceBody{id, o.Digest})
	if err != nil {
		return err
	}
	return w.UpsertRecords(job.Record{Kind: o.Kind, Key: o.Key, Owner: o.Owner, Body: body,
		ExpiresAt: w.Now().Add(o.Window)})
}
