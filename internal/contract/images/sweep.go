package images

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// The sweep repairs what a crash can leave behind: a job that is ready and whose message is lost,
// and an original without a job. It runs on one elected node at a time (G-IP-16). A node that stops
// or dies in the middle of a sweep loses only its position: the next one begins at the first job,
// and with the oldest original that it checks. All that a sweep does may be done twice: a job that
// is proposed twice is claimed once.
const (
	sweepInterval = 30 * time.Second
	sweepTerm     = sweepInterval * 9 / 10 // any node may be elected for the next sweep
	minSweepAge   = time.Minute
	sweepPageSize = 500 // jobs of each state in one sweep; the next continues after them
)

// runSweeps sweeps every sweepInterval until ctx ends.
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

// sweeper remembers how far the sweeps have come, as each handles a bounded number of rows.
type sweeper struct {
	*Images
	positions map[job.State]*job.Job // the last job of the previous sweep, by state
	lastKey   string                 // up to which the objects have been checked
	endKey    string                 // of the end of the window of objects that is being checked
}

func newSweeper(m *Images) *sweeper {
	return &sweeper{Images: m, positions: map[job.State]*job.Job{}}
}

// sweep resends lost messages and removes originals without a job, if this node is elected. The
// term of the election is a little shorter than the interval, so that it has ended when the next
// round begins, on any node. An error of one part does not keep the other from running.
func (s *sweeper) sweep(ctx context.Context) error {
	return s.Engine.AsLeader(ctx, "images.sweep", sweepTerm, func(ctx context.Context) error {
		return errors.Join(s.resendLost(ctx), s.removeOrphans(ctx))
	})
}

// resendLost sends the messages of jobs again that have been ready for minSweepAge. A job whose
// message is only waiting for an idle worker gets a second one, which finds nothing to claim.
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

// nextWaiting returns the next jobs of a state that have been in it for minSweepAge. After the
// last page the next sweep begins with the first again.
func (s *sweeper) nextWaiting(ctx context.Context, state job.State) ([]*job.Job, error) {
	search := store.Search{JobType: Name, State: state, Limit: sweepPageSize}
	if last := s.positions[state]; last != nil {
		search.AfterTime, search.AfterKey = last.CreatedAt, last.ID.Key
	}
	found, err := s.Engine.Search(ctx, search)
	if err != nil {
		return nil, err
	}
	delete(s.positions, state)
	if len(found) == sweepPageSize {
		s.positions[state] = found[sweepPageSize-1]
	}
	now := s.Now()
	return slices.DeleteFunc(found, func(j *job.Job) bool {
		return now.Sub(j.UpdatedAt) < minSweepAge
	}), nil
}

// An original without a job is an orphan: a crash came between the two. The sweep checks originals
// between these two ages. A younger one may belong to an upload that is still running, perhaps on a
// node whose clock is behind.
const (
	maxOrphanAge   = 2 * 24 * time.Hour
	minOrphanAge   = 2 * uploadTimeout
	orphanPageSize = 200
)

// removeOrphans removes the originals of uploads that were never acknowledged. Ids are ordered by
// time, so the keys of a window of time are a range of the list. An original that cannot be checked
// ends the sweep, and the next sweep begins with it again, until it is older than maxOrphanAge.
func (s *sweeper) removeOrphans(ctx context.Context) error {
	now := s.Now()
	s.lastKey = max(s.lastKey, keyPrefix+uuids.LowerBound(now.Add(-maxOrphanAge)))
	if s.lastKey >= s.endKey { // the window is finished; the next follows it
		s.endKey = keyPrefix + uuids.LowerBound(now.Add(-minOrphanAge))
	}
	found, err := s.Objects.List(ctx, "", keyPrefix, s.lastKey, orphanPageSize)
	if err != nil {
		return err
	}
	for _, key := range found {
		if key >= s.endKey {
			s.lastKey = s.endKey
			return nil
		}
		fileID, name, _ := strings.Cut(strings.TrimPrefix(key, keyPrefix), "/")
		if name == "original" {
			if err := s.removeIfOrphan(ctx, fileID); err != nil {
				return err
			}
		}
		s.lastKey = key
	}
	if len(found) < orphanPageSize {
		s.lastKey = s.endKey
	}
	return nil
}

func (s *sweeper) removeIfOrphan(ctx context.Context, fileID string) error {
	jobs, err := s.Engine.List(ctx, store.Filter{JobType: Name, Owner: fileID, NewestFirst: true,
		Limit: 1})
	if err != nil || len(jobs) > 0 {
		return err
	}
	return s.worker.object(opDelete, func() error {
		return s.Objects.Delete(ctx, "", originalKey(fileID))
	})
}
