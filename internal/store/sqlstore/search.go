package sqlstore

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The conditions all searches have. $3 is the newest time to look at, $4 the
// oldest; of the jobs created at $5, where the page before ended, those with a key
// up to $6 were there.
const (
	searchPage  = "created_at<=$3 AND created_at>=$4 AND (created_at<>$5 OR key>$6) ORDER BY created_at DESC,key LIMIT "
	searchParts = "{states $8} CROSS JOIN {priorities $9} {first of WHERE listed=1 AND contract=$1 AND "
	searchOrder = "} ORDER BY x.created_at DESC,x.key LIMIT $7"
)

// A search by state or queue takes the first few of each state and priority from
// the index, where they stand in the order asked for, and merges them.
var (
	searchNewest = &Statement{"search_newest", "SELECT seq FROM jobs WHERE listed=1 AND contract=$1 AND ($2='' OR queue=$2) AND " + searchPage + "$7"}
	searchState  = &Statement{"search_state", "SELECT x.seq FROM " + searchParts +
		"$2='' AND state=states.value AND priority=priorities.value AND " + searchPage + "$10" + searchOrder}
	searchQueue = &Statement{"search_queue", "SELECT x.seq FROM " + searchParts +
		"queue=$2 AND state=states.value AND priority=priorities.value AND " + searchPage + "$10" + searchOrder}
)

// Of each state and priority so many times its share of the page are taken at
// first, and at least so many jobs.
const (
	shares = 6
	fewest = 8
)

// Search is documented at the port.
func (t *Tx) Search(s store.Search, states []job.State) ([]*job.Job, error) {
	if !isText(s.Contract, s.Queue, string(s.State), s.AfterKey) {
		return nil, &job.Error{Kind: job.Invalid, Op: "search", Msg: "a text is not UTF-8 or holds a NUL character"}
	}
	if s.Limit <= 0 {
		return nil, nil
	}
	st, parts := searchNewest, 1
	args := append([]any{s.Contract, s.Queue}, searchBounds(s)...)
	args = append(args, s.Limit)
	if s.Queue != "" || s.State != "" || s.PriorityMin != 0 || s.PriorityMax != 0 {
		st = searchState
		if s.Queue != "" {
			st = searchQueue
		}
		names, priorities := searchIn(s, states)
		parts = len(names) * len(priorities)
		args = append(args, t.s.Texts(names), t.s.Ints(priorities))
	}
	if parts == 0 {
		return nil, nil
	}
	if st == searchNewest {
		return t.found(st, args)
	}
	// Few of each are enough unless all of one were needed: then there may be more.
	few := min(s.Limit, max(fewest, shares*s.Limit/parts))
	found, err := t.found(st, append(args, few))
	if err == nil && few < s.Limit && exhausted(found, few) {
		return t.found(st, append(args, s.Limit))
	}
	return found, err
}

// searchBounds returns the parameters $3 to $6.
func searchBounds(s store.Search) []any {
	newest, oldest, at := int64(math.MaxInt64), int64(math.MinInt64), int64(math.MinInt64)
	if !s.CreatedBefore.IsZero() {
		newest = Micros(s.CreatedBefore.Add(-1)) // a part of a microsecond counts
	}
	if !s.CreatedFrom.IsZero() {
		if oldest = Micros(s.CreatedFrom); fromMicros(oldest).Before(s.CreatedFrom) {
			oldest++
		}
	}
	if !s.AfterTime.IsZero() {
		at = Micros(s.AfterTime)
		newest = min(newest, at)
	}
	return []any{newest, oldest, at, s.AfterKey}
}

// searchIn returns the states and priorities to look in.
func searchIn(s store.Search, states []job.State) (names []string, priorities []int64) {
	for _, state := range states {
		if s.State == "" || s.State == state {
			names = append(names, string(state))
		}
	}
	for p := max(store.MinListed, s.PriorityMin); p <= min(store.MaxListed, cmp.Or(s.PriorityMax, store.MaxListed)); p++ {
		priorities = append(priorities, int64(p))
	}
	return names, priorities
}

// found runs a search and reads the jobs, in its order.
func (t *Tx) found(st *Statement, args []any) ([]*job.Job, error) {
	seqs, err := collect(t, st, scanInt, args...)
	if err != nil || len(seqs) == 0 {
		return nil, err
	}
	jobs, err := t.GetSeqs(seqs)
	slices.SortFunc(jobs, func(a, b *job.Job) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID.Key, b.ID.Key))
	})
	return jobs, err
}

// exhausted reports whether n of one state and priority were found.
func exhausted(found []*job.Job, n int) bool {
	type part struct {
		state    job.State
		priority int
	}
	count := map[part]int{}
	for _, j := range found {
		p := part{j.State, j.Priority}
		if count[p]++; count[p] == n {
			return true
		}
	}
	return false
}
