package top

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/millrace/millrace/client"
)

const (
	// readTimeout bounds one read of all that is shown.
	readTimeout = 5 * time.Second
	// maxQueues and maxWorkers bound how many are read; the queues are the first in the chosen
	// order.
	maxQueues  = 100
	maxWorkers = 200
	// seriesTime is the time of the charts.
	seriesTime = 10 * time.Minute
)

// request is what to read.
type request struct {
	order string // of the queues
	job   int64  // the job that is open, or 0
}

// snapshot is what was read.
type snapshot struct {
	request
	err       error
	queues    []client.AdminQueue
	workers   []client.AdminWorker
	succeeded []float64 // of the steps of the last seriesTime
	failed    []float64
	opened    openedJob
}

// openedJob is a job that is open.
type openedJob struct {
	job  client.AdminJob
	why  client.AdminWhy
	gone bool // there is no such job, or none any more
	err  error
}

// changed is a queue after it was paused or resumed, or why it was not.
type changed struct {
	queue client.AdminQueue
	err   error
}

// server is what the model needs of a server.
type server interface {
	read(r request) snapshot
	setPaused(q client.AdminQueue, paused bool) changed
}

// remote is the server at the other end.
type remote struct {
	ctx   context.Context
	admin *client.Admin
}

func (r *remote) read(q request) (s snapshot) {
	ctx, cancel := context.WithTimeout(r.ctx, readTimeout)
	defer cancel()
	s.request = q
	if s.queues, s.err = first(maxQueues, r.admin.Queues(ctx, client.AdminQueueFilter{
		Order: q.order, PageSize: maxQueues})); s.err != nil {
		return s
	}
	if s.workers, s.err = first(maxWorkers, r.admin.Workers(ctx)); s.err != nil {
		return s
	}
	if s.succeeded, s.err = r.series(ctx, client.AdminMetricSucceeded); s.err != nil {
		return s
	}
	if s.failed, s.err = r.series(ctx, client.AdminMetricFailed); s.err != nil || q.job == 0 {
		return s
	}
	s.opened = r.open(ctx, q.job)
	return s
}

// series returns the values of the last seriesTime.
func (r *remote) series(ctx context.Context, metric string) (values []float64, err error) {
	s, err := r.admin.Series(ctx, metric, client.AdminSeriesQuery{Step: 10 * time.Second})
	for _, p := range s.Points[max(0, len(s.Points)-int(seriesTime/(10*time.Second))):] {
		value := 0.0
		if p.Value != nil {
			value = *p.Value
		}
		values = append(values, value)
	}
	return values, err
}

// open reads one job, and why it does not run. One that is removed meanwhile has no why.
func (r *remote) open(ctx context.Context, number int64) (o openedJob) {
	found, err := r.admin.Job(ctx, number)
	if errors.Is(err, client.ErrNotFound) {
		return openedJob{gone: true}
	}
	if err != nil {
		return openedJob{err: err}
	}
	o.job = found.AdminJob
	if o.why, err = r.admin.Why(ctx, number); !errors.Is(err, client.ErrNotFound) {
		o.err = err
	}
	return o
}

func (r *remote) setPaused(q client.AdminQueue, paused bool) changed {
	ctx, cancel := context.WithTimeout(r.ctx, readTimeout)
	defer cancel()
	after, err := r.admin.SetQueue(ctx, q.Contract, q.Queue,
		client.AdminQueueChange{Paused: &paused})
	return changed{after, err}
}

// first returns up to n items of a list.
func first[T any](n int, all iter.Seq2[T, error]) (items []T, err error) {
	for item, err := range all {
		if err != nil {
			return nil, err
		}
		if items = append(items, item); len(items) == n {
			break
		}
	}
	return items, nil
}
