package sqlstore

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A list with Indexes is merged of several indexes, each of which has the numbers of some of the
// jobs that match, in the order of the page:
//
//	jobs of one state that are done   ──┐
//	jobs of one queue                 ──┼─▶ merged by number, up to where the first of them ends
//	ready jobs of one queue           ──┘
//
// Of each no more than a page is read. An index that has filled its page may have more behind it,
// so numbers beyond its last one are not known yet: the page ends there, and Next says so.

// The numbers that an index has between $1 and $2, the first $3. A planner might read the table in
// the order of the page instead, past all other jobs, if that order were that of its key. So the
// first two are in the order of their index, and the others, whose indexes have other orders, in
// that of a number that is not indexed.
var (
	finishedNumbers = newInOrder("finished_numbers", `SELECT seq FROM finished
		WHERE contract=$4 AND {within state} ORDER BY state #,seq # {limit $3}`)
	queueNumbers = newInOrder("queue_numbers", `SELECT seq FROM jobs
		WHERE contract=$4 AND {within queue} AND listed IS NOT NULL AND seq>0
		ORDER BY queue #,seq # {limit $3}`)
	searchableNumbers = newInOrder("found_numbers", `SELECT seq FROM searchable
		WHERE contract=$4 AND queue=$5 AND state=$6 AND {unindexed seq}>$1 AND {unindexed seq}<$2
		ORDER BY {unindexed seq} # {limit $3}`)
	searchableNumbersOfAll = newInOrder("found_numbers_of_all", `SELECT seq FROM searchable
		WHERE contract=$4 AND state=$5 AND state<>'' AND {unindexed seq}>$1 AND {unindexed seq}<$2
		ORDER BY {unindexed seq} # {limit $3}`)
	kindNumbers = newInOrder("kind_numbers", `SELECT seq FROM jobs
		WHERE contract=$4 AND kind=$5 AND kind<>'' AND {unindexed seq}>$1 AND {unindexed seq}<$2
		ORDER BY {unindexed seq} # {limit $3}`)
	readyNumbersOf = newInOrder("ready_numbers_of", `SELECT seq FROM ready
		WHERE queue_hash=$4 AND {unindexed seq}>$1 AND {unindexed seq}<$2 ORDER BY {unindexed seq} # {limit $3}`)
)

// indexStatements are all statements of indexes.
func indexStatements() []*Statement {
	return slices.Concat(finishedNumbers[:], queueNumbers[:], searchableNumbers[:],
		searchableNumbersOfAll[:], kindNumbers[:], readyNumbersOf[:])
}

// numbersOf returns the first f.Limit numbers of an index, in the order of f.
func (t *Tx) numbersOf(f *store.Filter, s *store.Index) ([]int64, error) {
	read := func(o *inOrder, keys ...any) ([]int64, error) {
		return collect(t, o.of(f), scanInt, append([]any{f.After, f.Before, f.Limit}, keys...)...)
	}
	switch {
	case s.Ready:
		return read(&readyNumbersOf, int64(job.QueueHashOf(s.JobType, s.Queue)))
	case s.Kind != "":
		return read(&kindNumbers, s.JobType, s.Kind)
	case s.Searchable:
		return read(&searchableNumbersOfAll, s.JobType, string(s.State))
	case s.Queue == "":
		return read(&finishedNumbers, s.JobType, string(s.State))
	case s.State == "":
		return read(&queueNumbers, s.JobType, s.Queue)
	}
	return read(&searchableNumbers, s.JobType, s.Queue, string(s.State))
}

// listIndexes is List with Indexes. Each of them, and the phases, may end before the others do: the
// page ends where the first of them does.
func (t *Tx) listIndexes(f *store.Filter) (p store.Page, err error) {
	compare := cmp.Compare[int64]
	if f.NewestFirst {
		compare = func(a, b int64) int { return cmp.Compare(b, a) }
	}
	if len(f.Phases) > 0 {
		phases := *f
		phases.Indexes = nil
		if p, err = t.List(phases); err != nil {
			return p, err
		}
	}
	endAt := func(number int64) {
		if p.Next == 0 || compare(number, p.Next) < 0 {
			p.Next = number
		}
	}
	isBeyond := func(number int64) bool { return p.Next != 0 && compare(number, p.Next) > 0 }
	var numbers []int64
	for i := range f.Indexes {
		some, err := t.numbersOf(f, &f.Indexes[i])
		if err != nil {
			return p, err
		}
		if numbers = append(numbers, some...); len(some) == f.Limit {
			endAt(some[f.Limit-1])
		}
	}
	slices.SortFunc(numbers, compare)
	if numbers = slices.Compact(numbers); len(numbers) > f.Limit {
		endAt(numbers[f.Limit-1])
	}
	numbers = slices.DeleteFunc(numbers, isBeyond)
	found, err := t.Load(store.Selector{Seqs: numbers, Bodies: bodiesOf(f)})
	if err != nil {
		return p, err
	}
	p.Jobs = append(p.Jobs, found...)
	slices.SortFunc(p.Jobs, func(a, b *job.Job) int { return compare(a.Seq, b.Seq) })
	p.Jobs = slices.CompactFunc(p.Jobs, func(a, b *job.Job) bool { return a.Seq == b.Seq })
	p.Jobs = slices.DeleteFunc(p.Jobs, func(j *job.Job) bool { return isBeyond(j.Seq) })
	if len(p.Jobs) > f.Limit {
		p.Jobs = p.Jobs[:f.Limit]
		p.Next = p.Jobs[f.Limit-1].Seq
	}
	return p, nil
}
