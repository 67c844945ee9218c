package sqlstore

import (
	"cmp"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A List has one order, by number, in either direction, and the index that leads with what the
// filter asks for. Each of its statements has the bounds of the numbers as $1 and $2.
//
//	Parent             jobs_parent
//	JobType, Owner     jobs_owner
//	JobType, Owners    jobs_owner, of all that they have
//	Dead               dead_letters_open_job
//	Runs               the key of leases
//	Indexes            those that they name, merged
//	otherwise          the tables of the phases: a page of each, of which the first jobs are taken
//
// No index leads with all that is asked for of the phases, so such a page costs what it passes
// over. Where Filter.Scan bounds that, scanEnd finds the number at which so many jobs end.

// inOrder is a statement for each direction: ascending, and descending.
type inOrder [2]*Statement

// newInOrder makes both statements of a text, in which # is replaced by the direction.
func newInOrder(name, text string) (both inOrder) {
	for i, direction := range []string{"", "DESC"} {
		both[i] = &Statement{name + []string{"", "_desc"}[i],
			strings.ReplaceAll(text, "#", direction)}
	}
	return both
}

// of returns the statement for the direction of a filter.
func (o *inOrder) of(f *store.Filter) *Statement {
	if f.NewestFirst {
		return o[1]
	}
	return o[0]
}

// listing is the statements of a list with all bodies, and without.
type listing struct{ full, withoutBodies inOrder }

func newListing(name string, text func(store.Bodies) string) listing {
	return listing{newInOrder(name, text(store.AllBodies)),
		newInOrder(name+"_bare", text(store.NoBodies))}
}

var (
	// SQLite would look for the jobs of a phase that has none at every job, if it began with jobs.
	listJobs = newListing("list_jobs", func(bodies store.Bodies) string {
		return ofPhases(16, func(p job.Phase) string {
			return JobsIn(p, bodies) + " WHERE s.seq>$1 AND s.seq<$2 AND " + matching +
				" ORDER BY s.seq # {limit $15}"
		}) + " ORDER BY seq # {limit $15}"
	})
	listChildren = newListing("list_children", func(bodies store.Bodies) string {
		return jobsOf(bodies) + ` WHERE j.parent=$3 AND j.parent>0 AND j.seq>$1 AND j.seq<$2
			AND ($4=0 OR s.state {text in $5}) ORDER BY j.seq # {limit $6}`
	})

	// The index on the job type and owner ends with seq. A page without states finds its rows
	// before their states. SQLite merges the phases, and would go on to the end for a phase that
	// has none of the states that are asked for.
	listOwned = newListing("list_owned", func(bodies store.Bodies) string {
		return jobsFrom("(SELECT * FROM jobs AS j WHERE "+owned+" ORDER BY j.seq # {limit $5})",
			bodies) + " ORDER BY j.seq #"
	})
	listOwnedIn = newListing("list_owned_of_states", func(bodies store.Bodies) string {
		return jobsOf(bodies) + " WHERE j." + owned +
			" AND s.state {text in $6} ORDER BY j.seq # {limit $5}"
	})

	deadNumbers = newInOrder("dead_numbers", `SELECT seq FROM dead_letters
		WHERE seq>0 AND seq>$1 AND seq<$2 AND replayed_at=0 ORDER BY seq # {limit $3}`)

	ownedNumbers = newInOrder("owned_numbers", `SELECT seq FROM jobs
		WHERE contract=$4 AND owner {text in $5} AND owner<>'' AND {unindexed seq}>$1
		AND {unindexed seq}<$2 ORDER BY {unindexed seq} # {limit $3}`)

	// The job type is read by the number, so that no planner begins with jobs.
	listRuns = newInOrder("list_runs", `SELECT s.seq,s.worker,
		(SELECT j.contract FROM jobs AS j WHERE j.seq=s.seq) FROM leases AS s
		WHERE s.seq>$1 AND s.seq<$2 ORDER BY s.seq # {limit $3}`)

	// Each row is of a phase that has at least $3 jobs.
	scanEnd = newInOrder("scan_end", ofPhases(4, func(p job.Phase) string {
		return "SELECT min(seq) AS lowest,max(seq) AS highest FROM (SELECT s.seq FROM " +
			tables[p].name + " AS s WHERE s.seq>$1 AND s.seq<$2 ORDER BY s.seq # {limit $3}) AS w" +
			" HAVING count(*)>=$3"
	}))
)

// listings are all statements of lists.
func listings() []*Statement {
	all := slices.Concat(deadNumbers[:], ownedNumbers[:], listRuns[:], scanEnd[:])
	for _, l := range []*listing{&listJobs, &listChildren, &listOwned, &listOwnedIn} {
		all = slices.Concat(all, l.full[:], l.withoutBodies[:])
	}
	return all
}

const owned = "contract=$3 AND j.owner=$4 AND j.owner<>'' AND j.seq>$1 AND j.seq<$2"

// matching are the comparisons for each job of a phase. A parameter that is 0 or empty selects all.
const matching = `($3='' OR j.contract=$3) AND ($4='' OR j.queue=$4) AND ($5='' OR j.owner=$5)
	AND ($6='' OR j.kind=$6) AND ($7='' OR s.worker=$7) AND ($8=0 OR s.state {text in $9})
	AND (j.created_at>=$10 OR $10=0) AND (j.created_at<$11 OR $11=0)
	AND (s.finished_at>=$12 OR $12=0) AND (s.finished_at<$13 OR $13=0)
	AND (s.attempts>=$14 OR $14=0)`

// ofPhases joins a select of each phase. Bit p of the parameter says whether phase p is chosen.
// SQLite decides that once as it compares one number; a subquery, such as a list, it would ask for
// each row.
func ofPhases(param int, text func(job.Phase) string) string {
	each := make([]string, len(tables))
	for p := range tables {
		each[p] = "SELECT * FROM (" + strings.Replace(text(job.Phase(p)), "WHERE ",
			fmt.Sprintf("WHERE ($%d & %d)<>0 AND ", param, 1<<p), 1) + ") AS in_" + tables[p].name
	}
	return strings.Join(each, " UNION ALL ")
}

// List is documented at the port.
func (t *Tx) List(f store.Filter) (p store.Page, err error) {
	isValid := isText(f.JobType, f.Queue, f.Owner, f.Kind, f.Worker) && isText(f.Owners...)
	for _, s := range f.Indexes {
		isValid = isValid && isText(s.JobType, s.Queue, string(s.State), s.Kind)
	}
	if !isValid {
		return p, &job.Error{Kind: job.Invalid, Op: "list",
			Msg: "a text is not UTF-8 or holds a NUL character"}
	}
	if f.Limit <= 0 {
		f.Limit = math.MaxInt
	}
	if f.Before <= 0 {
		f.Before = math.MaxInt64
	}
	switch {
	case f.Parent != 0 || byOwner(&f):
	case len(f.Owners) > 0:
		return t.listNumbers(&f, &ownedNumbers, bodiesOf(&f), f.JobType, t.s.Texts(f.Owners))
	case f.Dead:
		if f.Scan > 0 {
			f.Limit = min(f.Limit, f.Scan)
		}
		return t.listNumbers(&f, &deadNumbers, store.NoBodies)
	case f.Runs:
		return t.listRuns(&f)
	case len(f.Indexes) > 0:
		return t.listIndexes(&f)
	}
	end, err := t.endOfScan(&f)
	if err != nil {
		return p, err
	}
	switch {
	case end != 0 && f.NewestFirst:
		f.After = end - 1
	case end != 0:
		f.Before = end + 1
	}
	if p.Jobs, err = t.list(&f); err != nil {
		return p, err
	}
	if p.Next = end; len(p.Jobs) == f.Limit {
		p.Next = p.Jobs[f.Limit-1].Seq
	}
	return p, nil
}

// listNumbers is List for the jobs whose numbers a statement selects. What was deleted has none.
func (t *Tx) listNumbers(f *store.Filter, numbers *inOrder, bodies store.Bodies,
	args ...any) (p store.Page, err error) {
	seqs, err := collect(t, numbers.of(f), scanInt,
		append([]any{f.After, f.Before, f.Limit}, args...)...)
	if err != nil || len(seqs) == 0 {
		return p, err
	}
	if len(seqs) == f.Limit {
		p.Next = seqs[f.Limit-1]
	}
	p.Jobs, err = t.Load(store.Selector{Seqs: seqs, Bodies: bodies})
	slices.SortFunc(p.Jobs, func(a, b *job.Job) int {
		if f.NewestFirst {
			a, b = b, a
		}
		return cmp.Compare(a.Seq, b.Seq)
	})
	return p, err
}

// listRuns is List for the leased jobs.
func (t *Tx) listRuns(f *store.Filter) (p store.Page, err error) {
	p.Jobs, err = collect(t, listRuns.of(f), func(rows *sql.Rows) (*job.Job, error) {
		j := &job.Job{Phase: job.Leased}
		return j, rows.Scan(&j.Seq, &j.Worker, &j.ID.JobType)
	}, f.After, f.Before, f.Limit)
	if len(p.Jobs) == f.Limit {
		p.Next = p.Jobs[f.Limit-1].Seq
	}
	return p, err
}

// byOwner reports whether the index of owners is read.
func byOwner(f *store.Filter) bool {
	return f.Owner != "" && f.JobType != "" && (f.NewestFirst || f.WithoutBodies)
}

// bodiesOf returns the bodies with which a List returns jobs.
func bodiesOf(f *store.Filter) store.Bodies {
	if f.WithoutBodies {
		return store.NoBodies
	}
	return store.AllBodies
}

// list reads the jobs of a List between f.After and f.Before.
func (t *Tx) list(f *store.Filter) ([]*job.Job, error) {
	bodies, states := bodiesOf(f), make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	read := func(l *listing, args ...any) ([]*job.Job, error) {
		order := &l.full
		if f.WithoutBodies {
			order = &l.withoutBodies
		}
		return t.jobs(bodies, order.of(f), append([]any{f.After, f.Before}, args...)...)
	}
	switch {
	case f.Parent != 0:
		return read(&listChildren, f.Parent, len(states), t.s.Texts(states), f.Limit)
	case byOwner(f) && len(states) > 0:
		return read(&listOwnedIn, f.JobType, f.Owner, f.Limit, t.s.Texts(states))
	case byOwner(f):
		return read(&listOwned, f.JobType, f.Owner, f.Limit)
	}
	return read(&listJobs, f.JobType, f.Queue, f.Owner, f.Kind, f.Worker, len(states),
		t.s.Texts(states), timeBound(f.CreatedFrom), timeBound(f.CreatedBefore),
		timeBound(f.FinishedFrom), timeBound(f.FinishedBefore), f.MinAttempts, f.Limit,
		phaseBits(f))
}

// phaseBits returns the phases of a filter as the parameter of ofPhases; all where it names none.
func phaseBits(f *store.Filter) (bits int64) {
	for _, p := range f.Phases {
		bits |= 1 << p
	}
	return cmp.Or(bits, 1<<len(tables)-1)
}

// endOfScan returns the number at which f.Scan jobs of a phase end, 0 where each has fewer.
func (t *Tx) endOfScan(f *store.Filter) (int64, error) {
	if f.Scan <= 0 || f.Parent != 0 || byOwner(f) {
		return 0, nil
	}
	found, err := collect(t, scanEnd.of(f), func(rows *sql.Rows) (end int64, err error) {
		lowest, highest := int64(0), int64(0)
		if err = rows.Scan(&lowest, &highest); f.NewestFirst {
			return lowest, err
		}
		return highest, err
	}, f.After, f.Before, f.Scan, phaseBits(f))
	switch {
	case err != nil || len(found) == 0:
		return 0, err
	case f.NewestFirst:
		return slices.Max(found), nil
	}
	return slices.Min(found), nil
}

// timeBound returns a bound as it is compared with times that are stored, 0 for none. It is rounded
// up to their microseconds, so that a lower bound stays inclusive and an upper one exclusive.
func timeBound(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	us := Micros(at)
	if fromMicros(us).Before(at) {
		us++
	}
	return cmp.Or(us, 1)
}
