package engine

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Open dead letters may be many, and operators look at their groups again and again. A dead letter
// that is closed, as it was replayed or deleted, stays so. So a node caches the groups of those
// that it has read, and reads the groups of the newer ones alone, as long as
//
//	open dead letters by the counters of queues = open ones in the cache + newer ones
//
// which is so while none of those in the cache was closed. Dead letters are numbered before their
// transactions commit, so one may appear before others that are stored already: those of the last
// minute, in which such a transaction may still run, are not cached.

const (
	// minCachedAge is how old a dead letter is when it is cached.
	minCachedAge = time.Minute
	// maxUncached is how many newer dead letters are read without being cached, and maxCachedGroups
	// how many groups of a job type are cached.
	maxUncached     = 2000
	maxCachedGroups = 10_000
)

// deadLetterGroupCache has the groups that a node caches, by job type.
type deadLetterGroupCache struct {
	mu sync.Mutex
	of map[string]cachedDeadLetterGroups
}

// cachedDeadLetterGroups are the groups of the dead letters of a job type with an ID up to upTo,
// and how many of these were open. It is not changed.
type cachedDeadLetterGroups struct {
	upTo, open int64
	groups     map[string]job.DeadLetterGroup // by fingerprint
}

// JobTypeDeadLetterGroups are the groups of the open dead letters of a job type, in no order.
type JobTypeDeadLetterGroups struct {
	Groups []job.DeadLetterGroup
	More   bool // there are older ones, which were not looked at
}

// DeadLetterGroups groups the open dead letters of each of some job types by their fingerprint, as
// they were at one time of the store: of what a node has not read before the newest limit.
func (e *Engine) DeadLetterGroups(ctx context.Context, jobTypes []string,
	limit int) (all []JobTypeDeadLetterGroups, at time.Time, err error) {
	err = e.view(ctx, func(r reader) error {
		all, at = nil, r.Now()
		counts, err := r.Counts(store.QueueSelector{Sums: true})
		if err != nil {
			return err
		}
		open := map[string]int64{}
		for _, c := range counts {
			open[c.JobType] = c.Dead
		}
		for _, name := range jobTypes {
			groups, err := e.deadLetterGroupCache.read(r, name, open[name], limit)
			if err != nil {
				return err
			}
			all = append(all, JobTypeDeadLetterGroups{slices.Collect(maps.Values(groups)),
				deadLettersIn(groups) < open[name]})
		}
		return nil
	})
	return all, at, err
}

// read returns the groups of a job type, which has so many open dead letters.
func (g *deadLetterGroupCache) read(r reader, jobType string, open int64,
	limit int) (map[string]job.DeadLetterGroup, error) {
	if open == 0 {
		return nil, nil
	}
	g.mu.Lock()
	known := g.of[jobType]
	g.mu.Unlock()
	between := func(after, upTo int64) (map[string]job.DeadLetterGroup, error) {
		groups, err := r.DeadLetterGroups(jobType, after, upTo, limit)
		return joinGroups(nil, groups), err
	}
	if known.upTo > 0 {
		newer, err := between(known.upTo, math.MaxInt64)
		if err != nil {
			return nil, err
		}
		n := deadLettersIn(newer)
		switch {
		case known.open+n != open: // one in the cache was closed
			known = cachedDeadLetterGroups{}
		case n <= maxUncached:
			return joinGroups(known.groups, slices.Collect(maps.Values(newer))), nil
		}
	}
	newestOld, err := r.DeadLetters(store.DeadLetterSelector{JobType: jobType, NewestFirst: true,
		Before: r.Now().Add(-minCachedAge), Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(newestOld) > 0 && newestOld[0].ID > known.upTo {
		older, err := between(known.upTo, newestOld[0].ID)
		if err != nil {
			return nil, err
		}
		known = cachedDeadLetterGroups{upTo: newestOld[0].ID,
			groups: joinGroups(known.groups, slices.Collect(maps.Values(older)))}
	}
	newer, err := between(known.upTo, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	known.open = open - deadLettersIn(newer)
	g.put(jobType, known)
	return joinGroups(known.groups, slices.Collect(maps.Values(newer))), nil
}

// put caches the groups of a job type, unless they are too many.
func (g *deadLetterGroupCache) put(jobType string, deadLetters cachedDeadLetterGroups) {
	if len(deadLetters.groups) > maxCachedGroups {
		deadLetters = cachedDeadLetterGroups{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	put(&g.of, jobType, deadLetters)
}

// joinGroups returns groups with those of other dead letters.
func joinGroups(some map[string]job.DeadLetterGroup,
	others []job.DeadLetterGroup) map[string]job.DeadLetterGroup {
	all := make(map[string]job.DeadLetterGroup, len(some)+len(others))
	maps.Copy(all, some)
	for _, g := range others {
		known, ok := all[g.Fingerprint]
		if !ok {
			all[g.Fingerprint] = g
			continue
		}
		known.Count += g.Count
		known.LastID = max(known.LastID, g.LastID)
		if g.FirstAt.Before(known.FirstAt) {
			known.FirstAt = g.FirstAt
		}
		known.LastAt = later(known.LastAt, g.LastAt)
		all[g.Fingerprint] = known
	}
	return all
}

// deadLettersIn returns how many dead letters groups have.
func deadLettersIn(groups map[string]job.DeadLetterGroup) (n int64) {
	for _, g := range groups {
		n += g.Count
	}
	return n
}
