package sqlstore

import (
	"cmp"
	"database/sql"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A search takes the first few jobs of each priority from the index of what it asks
// for, where they stand in the order of a page, and merges them. The page begins at
// the place ($2, $3) of that order and holds nothing beyond $4.
func searchBy(name, condition string) *Statement {
	return &Statement{name, "SELECT x.seq,x.listed,x.key,priorities.value FROM {priorities $6} {first of WHERE listed<>0 AND contract=$1 AND " + condition +
		" AND priority=priorities.value AND (listed,key)>=($2,$3) AND listed<=$4 ORDER BY listed,key {limit $7}} ORDER BY x.listed,x.key {limit $5}"}
}

var (
	searchAll        = searchBy("search_all", "priority<>0 AND $8='' AND $9=''")
	searchQueue      = searchBy("search_queue", "queue<>'' AND queue=$8 AND $9=''")
	searchState      = searchBy("search_state", "state<>'' AND $8='' AND state=$9")
	searchQueueState = searchBy("search_queue_state", "queue=$8 AND state=$9")
)

// Search is documented at the port. It reads a few jobs of each priority, and then
// all the page can need of those of which it got no more: there may be. At worst
// limit/few are of that kind, so that by the choice of few neither step reads more
// than limit·√priorities.
func (t *Tx) Search(s store.Search) ([]*job.Job, error) {
	if !isText(s.Contract, s.Queue, string(s.State), s.AfterKey) {
		return nil, &job.Error{Kind: job.Invalid, Op: "search", Msg: "a text is not UTF-8 or holds a NUL character"}
	}
	priorities := searchIn(s)
	if s.Limit <= 0 || len(priorities) == 0 {
		return nil, nil
	}
	few := int(math.Ceil(float64(s.Limit) / math.Sqrt(float64(len(priorities)))))
	page, err := t.searchFirst(s, priorities, few)
	if err != nil {
		return nil, err
	}
	count := map[int64]int{}
	for _, f := range page {
		count[f.priority]++
	}
	priorities = slices.DeleteFunc(priorities, func(p int64) bool { return count[p] < few })
	if few < s.Limit && len(priorities) > 0 {
		more, err := t.searchFirst(s, priorities, s.Limit)
		if err != nil {
			return nil, err
		}
		page = slices.DeleteFunc(page, func(f found) bool { return count[f.priority] == few })
		page = append(page, more...)
		slices.SortFunc(page, func(a, b found) int { return cmp.Or(cmp.Compare(a.listed, b.listed), strings.Compare(a.key, b.key)) })
		page = page[:min(s.Limit, len(page))]
	}
	return t.inOrder(page)
}

// found is a job that belongs on a page, by its place there.
type found struct {
	seq      int64
	listed   int64
	key      string
	priority int64
}

func scanFound(rows *sql.Rows) (f found, err error) {
	err = rows.Scan(&f.seq, &f.listed, &f.key, &f.priority)
	return f, err
}

// inOrder reads the jobs of a page.
func (t *Tx) inOrder(page []found) ([]*job.Job, error) {
	if len(page) == 0 {
		return nil, nil
	}
	place := make(map[int64]int, len(page))
	seqs := make([]int64, len(page))
	for i, f := range page {
		place[f.seq], seqs[i] = i, f.seq
	}
	jobs, err := t.GetSeqs(seqs)
	slices.SortFunc(jobs, func(a, b *job.Job) int { return place[a.Seq] - place[b.Seq] })
	return jobs, err
}

// searchFirst reads the first jobs of some priorities, at most few of each.
func (t *Tx) searchFirst(s store.Search, priorities []int64, few int) ([]found, error) {
	st := searchAll
	switch {
	case s.Queue != "" && s.State != "":
		st = searchQueueState
	case s.Queue != "":
		st = searchQueue
	case s.State != "":
		st = searchState
	}
	first, key, last := searchBounds(s)
	return collect(t, st, scanFound, s.Contract, first, key, last, s.Limit, t.s.Ints(priorities), few, s.Queue, string(s.State))
}

// searchBounds returns where a page begins and beyond what it holds nothing.
func searchBounds(s store.Search) (first int64, key string, last int64) {
	first, last = math.MinInt64, math.MaxInt64
	if !s.CreatedBefore.IsZero() {
		first = -Micros(s.CreatedBefore.Add(-1)) // a part of a microsecond counts
	}
	if !s.CreatedFrom.IsZero() {
		if last = -Micros(s.CreatedFrom); fromMicros(-last).Before(s.CreatedFrom) {
			last--
		}
	}
	if after := -Micros(s.AfterTime); !s.AfterTime.IsZero() && after >= first {
		first, key = after, s.AfterKey+"\x01" // no key is between: none holds a NUL character
	}
	return first, key, last
}

// searchIn returns the priorities to look at.
func searchIn(s store.Search) (priorities []int64) {
	for p := max(store.MinListed, s.PriorityMin); p <= min(store.MaxListed, cmp.Or(s.PriorityMax, store.MaxListed)); p++ {
		priorities = append(priorities, int64(p))
	}
	return priorities
}
