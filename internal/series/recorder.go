package series

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

const (
	// interval is how often a node writes what it has counted.
	interval = 10 * time.Second
	// stopTimeout bounds the last write of a node that stops.
	stopTimeout = 2 * time.Second
)

// layer is one length of steps.
type layer struct {
	kind string // of its records
	step time.Duration
	keep time.Duration
	// before is the kind that has what was counted before an older version of the server knew this
	// one; "" for none.
	before string
}

// layers are the steps that are kept, the shortest first. Charts of a day have the third.
var layers = [...]layer{
	{"series.10s", interval, 2 * time.Hour, ""},
	{minutes, time.Minute, 48 * time.Hour, ""},
	{"series.5m", 5 * time.Minute, 48 * time.Hour, minutes},
	{"series.1h", time.Hour, 90 * 24 * time.Hour, ""},
}

// minutes is the kind of the records of a minute.
const minutes = "series.1m"

// keepMargin is how much longer records are kept, so that a query for the whole retention finds its
// first step.
const keepMargin = 5 * time.Minute

// Config configures a Recorder. Engine is required.
type Config struct {
	Engine *engine.Engine
	Log    *slog.Logger // nil logs nothing
}

// Recorder counts what a node does, writes it, and reads what all nodes have written. Its methods
// are safe for concurrent use.
type Recorder struct {
	Config

	writing sync.Mutex               // held by Write
	current [len(layers)]*stepCounts // the steps last written to

	mu      sync.Mutex
	sources []*requestSource
	pending *stepCounts // counted and not written
}

// requestSource counts the requests of a contract since the node began.
type requestSource struct {
	jobType          string
	count            func() (requests, errors uint64)
	requests, errors uint64 // as they were counted last
}

// stepCounts are what was counted in a step: the totals of job types, and their queues.
type stepCounts struct {
	at     time.Time // when the step begins; the zero time for counts that are not yet in a step
	totals buckets
	queues map[string]buckets
}

func newStepCounts(at time.Time) *stepCounts {
	return &stepCounts{at: at, totals: buckets{}, queues: map[string]buckets{}}
}

// queuesOf returns the buckets of the queues of a job type.
func (t *stepCounts) queuesOf(jobType string) buckets {
	if t.queues[jobType] == nil {
		t.queues[jobType] = buckets{}
	}
	return t.queues[jobType]
}

// add adds what was counted of a queue.
func (t *stepCounts) add(jobType, queue string, b *Bucket) {
	t.totals.of(jobType).mergeJobs(b)
	t.queuesOf(jobType).bounded(queue).mergeJobs(b)
}

// merged returns what two have counted, at different times.
func (t *stepCounts) merged(o *stepCounts) *stepCounts {
	both := newStepCounts(t.at)
	for _, one := range []*stepCounts{t, o} {
		for jobType, b := range one.totals {
			both.totals.of(jobType).mergeTimes(b)
		}
		for jobType, queues := range one.queues {
			for queue, b := range queues {
				both.queuesOf(jobType).bounded(queue).mergeTimes(b)
			}
		}
	}
	return both
}

// New makes the recorder of a node.
func New(c Config) (*Recorder, error) {
	if c.Engine == nil {
		return nil, errors.New("series: Engine is required")
	}
	return &Recorder{Config: c, pending: newStepCounts(time.Time{})}, nil
}

// CountRequests adds the requests of a contract to its series. count returns how many there were
// since the node began.
func (r *Recorder) CountRequests(jobType string, count func() (requests, errors uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, &requestSource{jobType: jobType, count: count})
}

// Run writes what the node counts until ctx ends, and once more then.
func (r *Recorder) Run(ctx context.Context) {
	loop := outage.Loop{Log: r.Log, Name: "series"}
	for {
		now, err := r.Write(ctx)
		loop.Report(ctx, err)
		if !clock.Sleep(ctx, now.Truncate(interval).Add(interval).Sub(now)) {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	_, _ = r.Write(last)
}

// collect counts what has happened since it was called last and returns all that is not written.
// The caller holds mu.
func (r *Recorder) collect() *stepCounts {
	for _, a := range r.Engine.TakeActivity() {
		r.pending.add(a.JobType, a.Queue, &Bucket{Activity: a.Activity})
	}
	for _, s := range r.sources {
		requests, failed := s.count()
		if requests != s.requests {
			r.pending.totals.of(s.jobType).mergeJobs(&Bucket{Requests: requests - s.requests,
				Errors: failed - s.errors})
			s.requests, s.errors = requests, failed
		}
	}
	return r.pending
}

// take returns the counts that are not written, and forgets them: they are the caller's then.
func (r *Recorder) take() *stepCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.collect()
	r.pending = newStepCounts(time.Time{})
	return taken
}

// putBack takes back what take has returned and could not be written.
func (r *Recorder) putBack(taken *stepCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = r.pending.merged(taken)
}

// Write writes what was counted since the last time into the steps of the ten seconds before, with
// the ready jobs of now, and returns the time of the store. What cannot be written is kept for the
// next time.
func (r *Recorder) Write(ctx context.Context) (time.Time, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	ready, now, err := r.Engine.Backlogs(ctx)
	if err != nil {
		return now, err
	}
	counted := r.take()
	if len(counted.totals) == 0 && len(ready) == 0 {
		return now, nil
	}
	with := counted.merged(depths(ready, now))
	var next [len(layers)]*stepCounts
	var records []job.Record
	for i, l := range layers {
		at := now.Add(-interval / 2).Truncate(l.step)
		next[i] = newStepCounts(at)
		if r.current[i] != nil && r.current[i].at.Equal(at) {
			next[i] = r.current[i]
		}
		next[i] = next[i].merged(with)
		records = append(records, r.records(&l, next[i])...)
	}
	err = r.Engine.ChangeRecords(ctx, "series:"+r.Engine.Node(),
		func(w engine.RecordWriter) error { return w.UpsertRecords(records...) })
	if err != nil {
		r.putBack(counted)
		return now, err
	}
	r.current = next
	return now, nil
}

// depths returns how many jobs are ready, of the queues with the most.
func depths(ready []engine.QueueStatus, now time.Time) *stepCounts {
	slices.SortFunc(ready, func(a, b engine.QueueStatus) int {
		return cmp.Compare(b.Ready, a.Ready)
	})
	t := newStepCounts(time.Time{})
	for _, q := range ready {
		b := &Bucket{Depth: uint64(q.Ready)}
		if !q.ReadySince.IsZero() {
			b.Oldest = max(0, now.Sub(q.ReadySince))
		}
		t.add(q.JobType, q.Queue, b)
	}
	return t
}

// records returns the records of a step. Their keys begin with its time, so they are found by it;
// that of the totals has no owner.
func (r *Recorder) records(l *layer, t *stepCounts) []job.Record {
	record := func(owner string, all buckets) job.Record {
		return job.Record{Kind: l.kind, Owner: owner, Body: all.encode(),
			Key:       keyOf(t.at) + "/" + owner + "/" + r.Engine.Node(),
			ExpiresAt: t.at.Add(l.step + l.keep + keepMargin)}
	}
	all := []job.Record{record("", t.totals)}
	for jobType, queues := range t.queues {
		all = append(all, record(jobType, queues))
	}
	return all
}

// keyDigits is the length of what keyOf returns.
const keyDigits = 11

// keyOf returns with what the keys of a step begin.
func keyOf(at time.Time) string { return fmt.Sprintf("%0*d", keyDigits, at.Unix()) }
