package sqlstore

import (
	"fmt"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// location says in which tables a job is stored beside jobs.
type location struct {
	phase      job.Phase
	searchable bool
}

// locationOf returns the location of a job that is stored as it is.
func locationOf(j *job.Job) location { return location{j.Phase, j.Searchable} }

// index numbers the locations.
func (p location) index() int {
	if p.searchable {
		return 2*int(p.phase) + 1
	}
	return 2 * int(p.phase)
}

// tablesOfLocation are the tables beside jobs that a job is deleted from, by the index of its
// location.
var tablesOfLocation = func() (all [2 * len(tables)][]string) {
	for phase, table := range tables {
		p := location{phase: job.Phase(phase)}
		all[p.index()] = []string{table.name}
		p.searchable = true
		all[p.index()] = []string{table.name, "searchable"}
	}
	return all
}()

// locations say in which table each job is that a transaction has locked or inserted. No other
// transaction moves these jobs, so a write of one need not look for it. The job in memory does
// not show it: the caller has changed it.
type locations map[int64]location

// add notes jobs as they were read or stored.
func (p *locations) add(jobs []*job.Job) {
	if *p == nil {
		*p = make(locations, len(jobs))
	}
	for _, j := range jobs {
		(*p)[j.Seq] = locationOf(j)
	}
}

// locate makes the locations of jobs known: it locks those that the transaction has not locked. A
// job that is not stored has no location afterwards.
func (t *Tx) locate(jobs []*job.Job) error {
	var unknown []int64
	for _, j := range jobs {
		if _, ok := t.locations[j.Seq]; !ok {
			unknown = append(unknown, j.Seq)
		}
	}
	if len(unknown) == 0 {
		return t.failed
	}
	_, err := t.Load(store.Selector{Seqs: unknown, Lock: true})
	return err
}

// defect ends the transaction with an error that should never be met.
func (t *Tx) defect(op, what string) error {
	return t.try(func() error { return &job.Error{Kind: job.Internal, Op: op, Msg: what} })
}

// checkAllMoved returns an error unless so many rows were changed as there are in a set.
func (t *Tx) checkAllMoved(name string, changed int64, set *BulkValues) error {
	if changed == int64(set.Len()) {
		return nil
	}
	return t.defect(name, fmt.Sprintf("%d of %d jobs were where they should be", changed,
		set.Len()))
}
