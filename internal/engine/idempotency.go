package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A request with an idempotency key may come again and makes its jobs once. Key and jobs are stored
// together or not at all. Mostly the key is the alias of the first job, which a repeated request
// finds:
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
//
// Where an answer needs the keys of many jobs, as that about a graph, a record has them, and is
// found even when the jobs are gone:
//
//	SubmitOnce ─▶ a transaction locks the key and reads its record
//	                a record of the same request  ─▶ its keys
//	                a record of another request   ─▶ ErrKeyReused
//	                no record, or an expired one  ─▶ jobs and record are inserted

// ErrKeyReused is wrapped by the Conflict of a request with an idempotency key that another request
// has used.
var ErrKeyReused = errors.New("the idempotency key was used for another request")

func errKeyReused(id job.ID) error {
	return &job.Error{Kind: job.Conflict, Op: "engine.submit", ID: id, Msg: ErrKeyReused.Error(),
		Err: ErrKeyReused}
}

// Idempotency identifies a request of which the repetitions make no second job. The zero value is
// for a request without a key, which makes a job each time.
type Idempotency struct {
	// Record keeps the key instead of an alias; the other members are not used then.
	Record *IdempotencyRecord

	Alias  job.IdentityHash // of the first job, see job.AliasOf
	Window time.Duration    // how long the job keeps the alias; 0 is as long as it is stored
	// IsSame reports whether a job was made by the same request. nil stands for true.
	IsSame func(*job.Job) bool
}

// find returns the job that has the alias, nil if there is none, and whether its window has ended.
func (o *Idempotency) find(r reader) (j *job.Job, expired bool, err error) {
	found, err := r.Load(store.Selector{Aliases: []job.IdentityHash{o.Alias},
		Bodies: store.AllBodies})
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	expired = o.Window > 0 && r.Now().Sub(found[0].CreatedAt) >= o.Window
	return found[0], expired, nil
}

// check refuses a job of another request.
func (o *Idempotency) check(j *job.Job) error {
	if o.IsSame != nil && !o.IsSame(j) {
		return errKeyReused(j.ID)
	}
	return nil
}

// FindSubmitted returns the job that the same request has made before, nil if there is none. It
// returns a Conflict that wraps ErrKeyReused if another request has made the job.
func (e *Engine) FindSubmitted(ctx context.Context, o Idempotency) (found *job.Job, err error) {
	if o.Alias == (job.IdentityHash{}) {
		return nil, nil
	}
	err = e.view(ctx, func(r reader) error {
		j, expired, err := o.find(r)
		if err != nil || j == nil || expired {
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

// Submitted is the answer to SubmitOnce.
type Submitted struct {
	// Existed reports that the same request was served before: nothing of the batch was stored.
	Existed bool
	// Job is the first job of the request, which must not be changed. It is nil for a request whose
	// jobs are found in a record. If the answer to an earlier call with the same batch was lost, it
	// may be the job of the batch itself, although Existed is set.
	Job *job.Job
	// Keys are the keys of all jobs, in the order of the batch; they are set with a Record only.
	Keys []string
}

// SubmitOnce is Submit in mode Unique for a request that may be repeated, with one job or many. The
// first job of the batch gets the alias, or the record gets the keys of all.
//
// Errors: those of Submit. The Conflict of a key that another request has used wraps ErrKeyReused;
// any other one says that a job with the identity exists.
func (e *Engine) SubmitOnce(ctx context.Context, o Idempotency,
	batch []Submission) (Submitted, error) {
	if o.Record != nil {
		return e.submitRecorded(ctx, o.Record, batch)
	}
	batch[0].Job.Alias = o.Alias
	r, err := e.Submit(ctx, Unique, batch)
	switch {
	case job.IsKind(err, job.Conflict) && o.Alias != (job.IdentityHash{}):
		return e.submitRepeated(ctx, o, batch)
	case err != nil:
		return Submitted{}, err
	}
	return Submitted{Job: r.Jobs[0]}, nil
}

// submitRepeated is SubmitOnce for a batch that conflicts with a stored job.
func (e *Engine) submitRepeated(ctx context.Context, o Idempotency, batch []Submission) (Submitted,
	error) {
	if j, err := e.FindSubmitted(ctx, o); j != nil || err != nil {
		return Submitted{Existed: j != nil, Job: j}, err
	}
	var s Submitted
	err := e.updateRetryingRaces(ctx, func(u *unit) (err error) {
		s, err = u.submitOnce(&o, batch)
		return err
	})
	if err != nil {
		return Submitted{}, err
	}
	return s, nil
}

// submitOnce returns the job that holds the alias if the same request has made it. Otherwise it
// stores the batch.
func (u *unit) submitOnce(o *Idempotency, batch []Submission) (Submitted, error) {
	j, expired, err := o.find(u.tx)
	if err != nil {
		return Submitted{}, err
	}
	if j != nil && !expired {
		return Submitted{Existed: true, Job: j}, o.check(j)
	}
	if expired {
		if err := u.freeAlias(j); err != nil {
			return Submitted{}, err
		}
	}
	jobs, existing, err := u.insert(batch)
	if err != nil {
		return Submitted{}, err
	}
	if len(existing) > 0 {
		return Submitted{}, u.explainConflict(existing[0], jobs[existing[0]])
	}
	u.changedJob.after = jobs[0]
	return Submitted{Job: jobs[0]}, u.checkQueueSize()
}

// freeAlias takes the alias from a job. The job stays as it is otherwise.
func (u *unit) freeAlias(found *job.Job) error {
	locked, err := u.tx.Load(store.Selector{Aliases: []job.IdentityHash{found.Alias}, Lock: true})
	if err != nil {
		return err
	}
	if len(locked) == 0 || locked[0].Seq != found.Seq { // pruned, or freed by another request
		return errConcurrentChange
	}
	locked[0].Alias = job.IdentityHash{}
	u.updateAll(locked[0])
	return u.flushJobs() // before the insert, which needs the alias
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
			return errConcurrentChange
		}
	}
	return errExists(j.ID)
}

// submitRecorded is SubmitOnce for a key that is kept by a record. The lock of the key comes before
// those of jobs, so that requests with one key run one after another.
func (e *Engine) submitRecorded(ctx context.Context, o *IdempotencyRecord,
	batch []Submission) (Submitted, error) {
	if err := e.check(Unique, batch); err != nil {
		return Submitted{}, err
	}
	var s Submitted
	err := e.updateRetryingRaces(ctx, func(u *unit) (err error) {
		s, err = u.submitRecorded(o, batch)
		return err
	})
	if err != nil {
		return Submitted{}, err
	}
	return s, nil
}

func (u *unit) submitRecorded(o *IdempotencyRecord, batch []Submission) (Submitted, error) {
	w := u.records()
	if err := w.Lock(o.Kind + ":" + o.Key); err != nil {
		return Submitted{}, err
	}
	found, err := o.read(w)
	if err != nil || len(found.Jobs) > 0 {
		return Submitted{Existed: true, Keys: found.Jobs}, err
	}
	call := submitCall{batch: batch, mode: Unique}
	if err := u.submit(&call); err != nil {
		return Submitted{}, err
	}
	s := Submitted{Job: call.result.Jobs[0], Keys: make([]string, len(batch))}
	for i := range batch {
		s.Keys[i] = batch[i].Job.ID.Key
	}
	return s, o.write(w, idempotencyBody{Jobs: s.Keys})
}

// DefaultIdempotencyWindow is how long an idempotency key is remembered where no setting says
// otherwise (G-FR-24).
const DefaultIdempotencyWindow = 24 * time.Hour

// IdempotencyRecord is an idempotency key that a record keeps, with what the request has made. The
// record is written in the same change. Requests that make jobs pass it to SubmitOnce; those that
// make records use Find and Store. A request without a key has a nil IdempotencyRecord, which finds
// nothing and stores nothing.
type IdempotencyRecord struct {
	Kind, Key, Owner string        // of the record
	Digest           string        // differs between requests with the same key
	Window           time.Duration // how long the key is remembered
}

// idempotencyBody is the body of the record of an IdempotencyRecord: what the request has made.
type idempotencyBody struct {
	ID     string   `json:"id,omitempty"`   // of one record
	Jobs   []string `json:"jobs,omitempty"` // their keys
	Digest string   `json:"request,omitempty"`
}

// Find returns the ID of what the same request has made before, "" if there is none. It returns a
// Conflict that wraps ErrKeyReused if another request came with the key.
func (o *IdempotencyRecord) Find(r RecordReader) (id string, err error) {
	if o == nil {
		return "", nil
	}
	body, err := o.read(r)
	return body.ID, err
}

// read returns what the same request has made before, which is empty if there is none.
func (o *IdempotencyRecord) read(r RecordReader) (body idempotencyBody, err error) {
	record, err := r.Record(o.Kind, o.Key)
	if err != nil || record == nil {
		return body, err
	}
	if err := json.Unmarshal(record.Body, &body); err != nil {
		return idempotencyBody{}, &job.Error{Op: "engine.submit",
			Msg: "a stored record cannot be read", Err: err}
	}
	if body.Digest != o.Digest {
		return idempotencyBody{}, errKeyReused(job.ID{})
	}
	return body, nil
}

// Store remembers the ID of what the request has made.
func (o *IdempotencyRecord) Store(w RecordWriter, id string) error {
	if o == nil {
		return nil
	}
	return o.write(w, idempotencyBody{ID: id})
}

func (o *IdempotencyRecord) write(w RecordWriter, made idempotencyBody) error {
	made.Digest = o.Digest
	body, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return w.UpsertRecords(job.Record{Kind: o.Kind, Key: o.Key, Owner: o.Owner, Body: body,
		ExpiresAt: w.Now().Add(o.Window)})
}
