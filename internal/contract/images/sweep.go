package images

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// The sweep that sends lost messages again (G-IP-16).
const (
	sweepInterval = 30 * time.Second
	sweepMinAge   = time.Minute
	sweepPageSize = 500 // of each state, at a time: a backlog gets its turns
)

// sweepElection is what the node that sweeps is elected for.
const sweepElection = "images.sweep"

// runSweeps sweeps now and then until ctx ends.
func (m *Images) runSweeps(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	s, rounds := newSweeper(m), outage.Loop{Log: m.Log, Name: "sweep"}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		rounds.Report(ctx, s.sweep(ctx))
	}
}

// sweeper goes through what may have been forgotten, a part at a time.
type sweeper struct {
	*Images
	positions map[job.State]*job.Job // where the next sweep goes on
	lastKey   string                 // key of the last object looked at
	minKey    string                 // older ones were looked at before
}

func newSweeper(m *Images) *sweeper {
	return &sweeper{Images: m, positions: map[job.State]*job.Job{}}
}

// sweep looks for lost messages and for uploads without a job. One node at a time does so.
func (s *sweeper) sweep(ctx context.Context) error {
	elected, err := s.engine.Elect(ctx, sweepElection, sweepInterval*9/10)
	if err != nil || !elected {
		return err
	}
	return errors.Join(s.resendLost(ctx), s.removeOrphans(ctx))
}

// resendLost sends those of jobs again that could be claimed for a minute and were not.
func (s *sweeper) resendLost(ctx context.Context) error {
	var all []*job.Job
	for _, state := range []job.State{queued, stale, retryDue, released} {
		waiting, err := s.nextWaiting(ctx, state)
		if err != nil {
			return err
		}
		all = append(all, waiting...)
	}
	return s.sendMessages(ctx, all...)
}

// nextWaiting are the next jobs of a state that have been in it for a minute.
func (s *sweeper) nextWaiting(ctx context.Context, state job.State) ([]*job.Job, error) {
	search := store.Search{Contract: Name, State: state, PriorityMin: defaultPriority,
		PriorityMax: defaultPriority, Limit: sweepPageSize}
	if last := s.positions[state]; last != nil {
		search.AfterTime, search.AfterKey = last.CreatedAt, last.ID.Key
	}
	found, err := s.engine.Search(ctx, search)
	if err != nil {
		return nil, err
	}
	delete(s.positions, state)
	if len(found) == sweepPageSize {
		s.positions[state] = found[sweepPageSize-1]
	}
	now, oldBefore := s.Now(), found[:0]
	for _, j := range found {
		if now.Sub(j.UpdatedAt) >= sweepMinAge {
			oldBefore = append(oldBefore, j)
		}
	}
	return oldBefore, nil
}

// Uploads that have no job: a crash came between the object and the job. Younger ones may be on
// their way, and their node's clock may be behind.
const (
	orphanMaxAge   = 2 * 24 * time.Hour
	orphanMinAge   = 2 * uploadTimeout
	orphanPageSize = 200
)

// removeOrphans removes the originals of uploads that were never acknowledged. Ids follow time, so
// those of a stretch of time are listed without looking at others.
func (s *sweeper) removeOrphans(ctx context.Context) error {
	now := s.Now()
	if s.minKey == "" || s.lastKey >= s.minKey { // once around
		s.lastKey, s.minKey = max(s.minKey, keyPrefix+uuids.LowerBound(now.Add(-orphanMaxAge))),
			keyPrefix+uuids.LowerBound(now.Add(-orphanMinAge))
	}
	found, err := s.Objects.List(ctx, "", keyPrefix, s.lastKey, orphanPageSize)
	if err != nil {
		return err
	}
	for _, key := range found {
		if s.lastKey = key; key >= s.minKey {
			break
		}
		fileID, name, _ := strings.Cut(strings.TrimPrefix(key, keyPrefix), "/")
		if name != "original" {
			continue
		}
		if err := s.removeIfOrphan(ctx, fileID); err != nil {
			return err
		}
	}
	if len(found) < orphanPageSize {
		s.lastKey = s.minKey
	}
	return nil
}

func (s *sweeper) removeIfOrphan(ctx context.Context, fileID string) error {
	jobs, err := s.engine.List(ctx, store.Filter{Contract: Name, Owner: fileID, NewestFirst: true,
		Limit: 1})
	if err != nil || len(jobs) > 0 {
		return err
	}
	return s.worker.object(opDelete, func() error {
		return s.Objects.Delete(ctx, "", originalKey(fileID))
	})
}
