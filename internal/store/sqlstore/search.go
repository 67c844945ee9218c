package sqlstore

import (
	"cmp"
	"database/sql"
	"math"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// searchBy returns a search of a table with a condition on queue and state. For each such condition
// there is an index that has the jobs of one priority, or of none, in the order of a page,
// (listed, key), where listed is minus the time of creation. A search merges the first jobs of each
// priority. Its page begins at ($2, $3), ends at $4, and has at most $5 jobs with priorities from
// $6 to $7. Without a state it reads the definitions, which a change of phase does not write.
func searchBy(name, table, condition string) *Statement {
	return &Statement{name, "{each priority " + table + " WHERE contract=$1 AND " + condition +
		" AND (listed,key)>=($2,$3) AND listed<=$4} ORDER BY listed,key {limit $5}"}
}

var (
	searchAll = searchBy("search_all", "jobs",
		"listed IS NOT NULL AND contract<>'' AND $8='' AND $9=''")
	searchQueue = searchBy("search_queue", "jobs",
		"listed IS NOT NULL AND queue<>'' AND queue=$8 AND $9=''")
	searchState = searchBy("search_state", "searchable",
		"state<>'' AND $8='' AND state=$9")
	searchQueueState = searchBy("search_queue_state", "searchable",
		"queue=$8 AND state=$9")
)

// Search is documented at the port.
func (t *Tx) Search(s store.Search) ([]*job.Job, error) {
	if !isText(s.JobType, s.Queue, string(s.State), s.AfterKey) {
		return nil, &job.Error{Kind: job.Invalid, Op: "search",
			Msg: "a text is not UTF-8 or holds a NUL character"}
	}
	lowest, highest := priorityBounds(s)
	if s.Limit <= 0 || lowest > highest {
		return nil, nil
	}
	first, key, last := searchBounds(s)
	page, err := collect(t, searchFor(s), scanSearchRow, s.JobType, first, key, last, s.Limit,
		lowest, highest, s.Queue, string(s.State))
	if err != nil || len(page) == 0 {
		return nil, err
	}
	index := make(map[int64]int, len(page))
	for i, seq := range page {
		index[seq] = i
	}
	jobs, err := t.Load(store.Selector{Seqs: page, Bodies: store.AllBodies})
	slices.SortFunc(jobs, func(a, b *job.Job) int { return index[a.Seq] - index[b.Seq] })
	return jobs, err
}

// priorityBounds returns the lowest and the highest priority to look for.
func priorityBounds(s store.Search) (lowest, highest int) {
	if s.PriorityMin == 0 && s.PriorityMax == 0 {
		return job.NoPriority, store.MaxPriority
	}
	return max(store.MinPriority, s.PriorityMin),
		min(store.MaxPriority, cmp.Or(s.PriorityMax, store.MaxPriority))
}

// scanSearchRow reads a row of the index. Only the number counts: position and key are there for
// the order.
func scanSearchRow(rows *sql.Rows) (seq int64, err error) {
	var listed int64
	var key string
	err = rows.Scan(&seq, &listed, &key)
	return seq, err
}

// searchFor returns the statement whose index has all that s compares exactly, so that a page
// reads no row of another queue or state. A test of each database looks at its plan (TF-087,
// decision 0015).
func searchFor(s store.Search) *Statement {
	switch {
	case s.Queue != "" && s.State != "":
		return searchQueueState
	case s.Queue != "":
		return searchQueue
	case s.State != "":
		return searchState
	default:
		return searchAll
	}
}

// searchBounds returns the first position of a page, (first, key), and the last value of listed.
// Positions are minus the time of creation, so the upper bound of time is the first position and
// the lower bound the last. Bounds are rounded to the microseconds that are stored so that
// CreatedFrom stays inclusive and CreatedBefore exclusive.
func searchBounds(s store.Search) (first int64, key string, last int64) {
	first, last = math.MinInt64, math.MaxInt64
	if !s.CreatedBefore.IsZero() {
		first = -Micros(s.CreatedBefore.Add(-1)) // a part of a microsecond counts
	}
	if !s.CreatedFrom.IsZero() {
		last = -Micros(s.CreatedFrom)
		if fromMicros(-last).Before(s.CreatedFrom) {
			last--
		}
	}
	if after := -Micros(s.AfterTime); !s.AfterTime.IsZero() && after >= first {
		first, key = after, s.AfterKey+"\x01" // the next possible key: none has a NUL character
	}
	return first, key, last
}
