package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/store"
)

// shiftedStore is a store on another time, so that what is done now was done long ago.
type shiftedStore struct {
	store.Store
	by time.Duration // added to the time
}

func (s *shiftedStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(&shiftedTx{tx, s.by}) })
}

func (s *shiftedStore) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(&shiftedReader{r, s.by}) })
}

type shiftedTx struct {
	store.Tx
	by time.Duration
}

func (t *shiftedTx) Now() time.Time { return t.Tx.Now().Add(t.by) }

type shiftedReader struct {
	store.Reader
	by time.Duration
}

func (r *shiftedReader) Now() time.Time { return r.Reader.Now().Add(r.by) }

// pastSteps are how long ago the series are written for a past, the longest ago first: as often as
// a server writes them in the last hour, once a minute in the day before, and once an hour before
// that. Those are the steps that the charts of an hour, a day and a week read.
func pastSteps(past time.Duration) (ago []time.Duration) {
	for at := 10 * time.Second; at <= past; {
		ago = append(ago, at)
		switch {
		case at < time.Hour:
			at += 10 * time.Second
		case at < 24*time.Hour:
			at += time.Minute
		default:
			at += time.Hour
		}
	}
	slices.Reverse(ago)
	return ago
}

// fillPast writes the series of a past in which jobs came and went in all queues of Relay, into a
// store without jobs.
func fillPast(ctx context.Context, s store.Store, past time.Duration) error {
	shifted := &shiftedStore{Store: s}
	e, err := newRelayEngine(shifted)
	if err != nil {
		return err
	}
	defer e.Close()
	recorder, err := series.New(series.Config{Engine: e})
	if err != nil {
		return err
	}
	for i, ago := range pastSteps(past) {
		shifted.by = -ago
		if err := workQueues(ctx, e, "past-"+strconv.Itoa(i)); err != nil {
			return fmt.Errorf("work of %s ago: %w", ago, err)
		}
		if _, err := recorder.Write(ctx); err != nil {
			return fmt.Errorf("series of %s ago: %w", ago, err)
		}
	}
	return nil
}

// workQueues submits a job to each queue of Relay, and claims and finishes as many.
func workQueues(ctx context.Context, e *engine.Engine, key string) error {
	var batch []engine.Submission
	var queues []string
	for i := range relayQueues {
		queue := "r" + strconv.Itoa(i)
		queues = append(queues, queue)
		batch = append(batch, engine.Submission{Job: job.Job{ID: job.ID{JobType: relay.Name,
			Scope: queue, Key: key}, Queue: queue, Lease: time.Hour,
			Payload: appendPayload(nil, i)}})
	}
	if _, err := e.Submit(ctx, engine.Unique, batch); err != nil {
		return err
	}
	jobs, err := e.Claim(ctx, engine.ClaimRequest{JobType: relay.Name, Queues: queues,
		Max: relayQueues, Worker: "past"})
	if err != nil {
		return err
	}
	finishes := make([]engine.FinishRequest, len(jobs))
	for i, j := range jobs {
		finishes[i] = engine.FinishRequest{Run: engine.Run{Run: j.Run},
			Outcome: engine.Outcome{On: job.Succeeded}}
	}
	for _, ended := range e.FinishAll(ctx, finishes) {
		if ended.Err != nil {
			return ended.Err
		}
	}
	return nil
}
