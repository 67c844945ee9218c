package images

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/serial"
	"github.com/millrace/millrace/internal/store"
)

// The sweep that sends lost messages again (G-IP-16).
const (
	sweepEvery = 30 * time.Second
	sweepAge   = time.Minute
	sweepPage  = 500 // of each state, at a time: a backlog gets its turns
)

// sweepDuty is what the node that sweeps is elected for.
const sweepDuty = "images.sweep"

// runSweeps sweeps now and then until ctx ends.
func (m *Images) runSweeps(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	s, rounds := newSweeper(m), outage.Loop{Log: m.Log, What: "sweep"}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		rounds.Did(ctx, s.sweep(ctx))
	}
}

// sweeper goes through what may have been forgotten, a part at a time.
type sweeper struct {
	*Images
	last  map[job.State]*job.Job // where the next sweep goes on
	after string                 // key of the last object looked at
	until string                 // older ones were looked at before
}

func newSweeper(m *Images) *sweeper { return &sweeper{Images: m, last: map[job.State]*job.Job{}} }

// sweep looks for lost messages and for uploads without a job. One node at a time does so.
func (s *sweeper) sweep(ctx context.Context) error {
	elected, err := s.engine.Elect(ctx, sweepDuty, sweepEvery*9/10)
	if err != nil || !elected {
		return err
	}
	return errors.Join(s.messages(ctx), s.orphans(ctx))
}

// messages sends those of jobs again that could be claimed for a minute and were not.
func (s *sweeper) messages(ctx context.Context) error {
	var all []*job.Job
	for _, state := range []job.State{queued, stale, retryDue, released} {
		waiting, err := s.waiting(ctx, state)
		if err != nil {
			return err
		}
		all = append(all, waiting...)
	}
	return s.sendMessages(ctx, all...)
}

// waiting are the next jobs of a state that have been in it for a minute.
func (s *sweeper) waiting(ctx context.Context, state job.State) ([]*job.Job, error) {
	search := store.Search{Contract: Name, State: state, PriorityMin: usualPriority, PriorityMax: usualPriority, Limit: sweepPage}
	if last := s.last[state]; last != nil {
		search.AfterTime, search.AfterKey = last.CreatedAt, last.ID.Key
	}
	found, err := s.engine.Search(ctx, search)
	if err != nil {
		return nil, err
	}
	delete(s.last, state)
	if len(found) == sweepPage {
		s.last[state] = found[sweepPage-1]
	}
	now, old := s.Now(), found[:0]
	for _, j := range found {
		if now.Sub(j.UpdatedAt) >= sweepAge {
			old = append(old, j)
		}
	}
	return old, nil
}

// Uploads that have no job: a crash came between the object and the job. Younger ones may be on their way, and their
// node's clock may be behind.
const (
	orphanFrom = 2 * 24 * time.Hour
	orphanTo   = 2 * uploadTime
	orphanPage = 200
)

// orphans removes the originals of uploads that were never acknowledged. Ids follow time, so those of a stretch of time
// are listed without looking at others.
func (s *sweeper) orphans(ctx context.Context) error {
	now := s.Now()
	if s.until == "" || s.after >= s.until { // once around
		s.after, s.until = max(s.until, keyPrefix+serial.Floor(now.Add(-orphanFrom))), keyPrefix+serial.Floor(now.Add(-orphanTo))
	}
	found, err := s.Objects.List(ctx, "", keyPrefix, s.after, orphanPage)
	if err != nil {
		return err
	}
	for _, key := range found {
		if s.after = key; key >= s.until {
			break
		}
		fileID, name, _ := strings.Cut(strings.TrimPrefix(key, keyPrefix), "/")
		if name != "original" {
			continue
		}
		if err := s.orphan(ctx, fileID); err != nil {
			return err
		}
	}
	if len(found) < orphanPage {
		s.after = s.until
	}
	return nil
}

func (s *sweeper) orphan(ctx context.Context, fileID string) error {
	jobs, err := s.engine.List(ctx, store.Filter{Contract: Name, Owner: fileID, Newest: true, Limit: 1})
	if err != nil || len(jobs) > 0 {
		return err
	}
	return s.worker.object(opDelete, func() error { return s.Objects.Delete(ctx, "", originalKey(fileID)) })
}
