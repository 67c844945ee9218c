package images

import (
	"context"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// A purge removes old copies of a file from the CDN after the file has changed:
//
//	job of the file completed ─► message in the outbox ─► submitPurge ─► worker ─► CDN.Purge
//
// Each step may happen twice after a crash. The purge has the id of the job that changed the file,
// so it is stored once, and the CDN gets the same id as a reference. Its attempts go on for about
// half an hour; what fails then is logged as a warning, and caches drop their copies after the time
// in cacheControl.

// Purges are jobs of a type of their own, so that an outage of the CDN delays nothing else. The
// message of a change in the outbox leads to one purge of the file, see Deliver.
const (
	purgeLease       = time.Minute
	maxPurgeAttempts = 12
	purgeRetention   = 7 * 24 * time.Hour
	purgeWorkers     = 2
	purgeQueue       = "purge"
)

var purgeRetry = job.RetryPolicy{Strategy: job.Exponential, Base: time.Second,
	Max: 10 * time.Minute}

// submitPurge submits the purge of a file and its variants, once for each job that changed the
// file (G-IP-24). It contains all variants that the file has, as an older copy of any of them may
// be cached.
func (m *Images) submitPurge(ctx context.Context, f *file, jobID string) error {
	keys := []string{originalKey(f.id)}
	for _, v := range f.processResult.Variants {
		keys = append(keys, v.Key)
	}
	text, _ := json.Marshal(keys)
	return m.worker.query(opInsert, func() error {
		_, err := m.Engine.Submit(ctx, engine.Ignore,
			[]engine.Submission{{Job: job.Job{ID: job.ID{JobType: Purges, Key: jobID},
				Queue: purgeQueue, Owner: f.id, Lease: purgeLease, MaxAttempts: maxPurgeAttempts,
				Retry: purgeRetry, Payload: text}}})
		return err
	})
}

// runPurges executes purges until ctx ends. Every node with a CDN does so, also one without local
// workers.
func (m *Images) runPurges(ctx context.Context) {
	if m.CDN == nil {
		return
	}
	pool := worker.MustNew(worker.Config{Engine: m.Engine, JobType: Purges,
		Name: m.Node + "/purge", Workers: purgeWorkers,
		HeartbeatInterval: purgeLease / heartbeatsPerLock, Handler: purges{m}, Log: m.Log})
	pool.Run(ctx, m.Grace)
}

// purges executes purges.
type purges struct{ *Images }

// Handle implements worker.Handler.
func (p purges) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	err := p.purge(ctx, t.Job)
	switch {
	case err != nil && ctx.Err() != nil:
		return engine.Outcome{On: job.Released}
	case err != nil:
		return engine.Outcome{On: job.Failed, Reason: err.Error()}
	}
	return engine.Outcome{On: job.Succeeded}
}

// purge makes one call of the CDN with all keys of a purge, and measures it.
func (p purges) purge(ctx context.Context, j *job.Job) error {
	var keys []string
	if err := json.Unmarshal(j.Payload, &keys); err != nil {
		return err
	}
	return p.worker.cdn.call(func() error {
		return p.CDN.Purge(ctx, j.ID.Key, keys)
	}, p.CDN.Operation())
}
