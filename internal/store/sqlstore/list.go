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

// A List reads the numbers of jobs from one index or several, each of which leads with something
// that the filter asks for and has the numbers within that in order:
//
//	IDs                     jobs_identity, each is one job
//	Parent                  jobs_parent
//	Owner with Contracts    jobs_owner, of each contract
//	Phases                  the table of each phase
//	none of these           the table jobs
//
// Two more indexes are in another order: the ready jobs of a queue, and what finished in a time.
// Where they have few numbers, all of these are read and sorted.
//
// What an index does not lead with is compared for each job (matching), of which Filter.Scan
// limits the number: one statement finds the number at which that many jobs end, another those
// that match up to there. What several indexes have is merged, as far as each of them was read.

// listing is the statements that read an index. Each has one for either order: ascending, and
// descending. Their parameters are
//
//	$1, $2   the numbers between which the jobs are
//	$3       the limit
//	$4 …     of numbers: those of matching, and then those of the index; of bound: those of the index
type listing struct{ numbers, bound [2]*Statement }

// newListing makes the statements of an index. where is the condition of the index on j, with # for
// its parameters. jobs says where facts j and states s are read, seq which number of the two is in
// the index, and table what bound reads.
func newListing(name, jobs, seq, phase, table, where string) *listing {
	l := &listing{}
	conditions := fmt.Sprintf(matching, phase)
	for i, order := range []string{"", " DESC"} {
		suffix := strings.ToLower(strings.ReplaceAll(order, " ", "_"))
		l.numbers[i] = &Statement{"list_" + name + suffix, "SELECT " + seq + " FROM " + jobs +
			" WHERE " + seq + ">$1 AND " + seq + "<$2" + numbered(where, matchingParams) +
			conditions + " ORDER BY " + seq + order + " {limit $3}"}
		l.bound[i] = &Statement{"bound_" + name + suffix,
			"SELECT count(*),coalesce(min(seq),0),coalesce(max(seq),0) FROM (SELECT j.seq FROM " +
				table + " AS j WHERE j.seq>$1 AND j.seq<$2" + numbered(where, 3) +
				" ORDER BY j.seq" + order + " {limit $3}) AS b"}
	}
	return l
}

// numbered replaces the marks # of a condition by the numbers of parameters above n.
func numbered(where string, n int) string {
	for strings.Contains(where, "#") {
		n++
		where = strings.Replace(where, "#", fmt.Sprintf("$%d", n), 1)
	}
	return where
}

// matching is what is compared for each job; %s is its phase. A parameter of 0 or ” selects all.
// One that is compared with a column is so first: that gives it its type.
const matching = ` AND ($4=0 OR j.contract {text in $5}) AND ($6='' OR j.queue=$6)
	AND ($7='' OR j.owner=$7) AND ($8='' OR j.kind=$8) AND (j.parent=$9 OR $9=0)
	AND (j.created_at>=$10 OR $10=0) AND (j.created_at<$11 OR $11=0)
	AND ($12=0 OR s.state {text in $13}) AND ($14=0 OR %s {in $15}) AND ($16='' OR s.worker=$16)
	AND (s.finished_at>=$17 OR $17=0) AND (s.finished_at<$18 OR $18=0)
	AND (s.attempts>=$19 OR $19=0)`

const matchingParams = 19 // the number of the last one

// matchingArgs are the parameters of matching.
func (t *Tx) matchingArgs(f *store.Filter) []any {
	states, phases := make([]string, len(f.States)), make([]int64, len(f.Phases))
	for i, s := range f.States {
		states[i] = string(s)
	}
	for i, p := range f.Phases {
		phases[i] = int64(p)
	}
	return []any{len(f.Contracts), t.s.Texts(f.Contracts), f.Queue, f.Owner, f.Kind, f.Parent,
		timeBound(f.CreatedFrom), timeBound(f.CreatedBefore), len(states), t.s.Texts(states),
		len(phases), t.s.Ints(phases), f.Worker, timeBound(f.FinishedFrom),
		timeBound(f.FinishedBefore), f.MinAttempts}
}

// timeBound returns a bound as it is compared with times that are stored, 0 for none. It is rounded
// up to the microseconds of these, so that a lower bound stays inclusive and an upper one exclusive.
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

// anyState is the facts of jobs with their states, in any phase.
var anyState = "jobs AS j JOIN (" + statesOf([]jobColumn{phaseColumn, {Column: Column{"state", ""}},
	{Column: Column{"worker", ""}}, {Column: Column{"attempts", ""}},
	{Column: Column{"finished_at", ""}}}, "") + ") AS s ON s.seq=j.seq"

var (
	listAll      = newListing("jobs", anyState, "j.seq", "s.phase", "jobs", "")
	listChildren = newListing("children", anyState, "j.seq", "s.phase", "jobs",
		" AND j.parent=# AND j.parent>0")
	listOwned = newListing("owned", anyState, "j.seq", "s.phase", "jobs",
		" AND j.contract=# AND j.owner=# AND j.owner<>''")
	listNumbers = newListing("numbers", anyState, "j.seq", "s.phase", "jobs", " AND j.seq {in #}")
	listIDs     = newListing("ids", anyState, "j.seq", "s.phase", "jobs", " AND j.identity {blob in #}")
	listPhase   = phaseListings()

	finishedNumbers = &Statement{"finished_numbers", `SELECT seq FROM finished WHERE contract=$1
		AND finished_at>=$2 AND finished_at<$3 {limit $4}`}
)

// listings are the statements that Narrow has of the lists: all but those of few numbers.
func listings() (all []*Statement) {
	for _, l := range append([]*listing{listAll, listChildren, listOwned}, listPhase[:]...) {
		all = append(append(all, l.numbers[:]...), l.bound[:]...)
	}
	return all
}

func phaseListings() (all [len(tables)]*listing) {
	for p := range tables {
		name := tables[p].name
		all[p] = newListing(name, name+" AS s JOIN jobs AS j ON j.seq=s.seq",
			"s.seq", fmt.Sprint(p), name, "")
	}
	return all
}

// source is an index that a List reads, with the parameters of its condition.
type source struct {
	*listing
	args []any
	// numbers are those of an index that was read at once, in place of a condition.
	numbers []int64
}

// fewNumbers is up to how many numbers of an index in another order are read and sorted.
const fewNumbers = 5000

// sources chooses the indexes for a filter.
func (t *Tx) sources(f *store.Filter) ([]source, error) {
	switch {
	case len(f.IDs) > 0:
		return []source{{listing: listIDs, args: []any{t.s.IdentityHashes(identities(f.IDs))}}}, nil
	case f.Parent != 0:
		return []source{{listing: listChildren, args: []any{f.Parent}}}, nil
	case f.Owner != "" && len(f.Contracts) > 0:
		var all []source
		for _, contract := range f.Contracts {
			all = append(all, source{listing: listOwned, args: []any{contract, f.Owner}})
		}
		return all, nil
	}
	numbers, few, err := t.fewNumbers(f)
	if err != nil {
		return nil, err
	}
	if few {
		return []source{{listing: listNumbers, numbers: numbers}}, nil
	}
	phases := slices.Compact(slices.Sorted(slices.Values(f.Phases)))
	if len(phases) == 0 || len(phases) == len(tables) {
		return []source{{listing: listAll}}, nil
	}
	all := make([]source, len(phases))
	for i, p := range phases {
		all[i] = source{listing: listPhase[p]}
	}
	return all, nil
}

// fewNumbers returns all numbers of an index that is in another order, if there is one for the
// filter and it has few.
func (t *Tx) fewNumbers(f *store.Filter) (all []int64, few bool, err error) {
	isIn := func(p job.Phase) bool { return len(f.Phases) == 1 && f.Phases[0] == p }
	finished := !f.FinishedFrom.IsZero() || !f.FinishedBefore.IsZero()
	switch {
	case isIn(job.Ready) && len(f.Contracts) == 1 && f.Queue != "":
		all, err = collect(t, readyNumbers, scanInt,
			int64(job.QueueHashOf(f.Contracts[0], f.Queue)), fewNumbers+1)
	case isIn(job.Done) && finished && len(f.Contracts) > 0:
		before := cmp.Or(timeBound(f.FinishedBefore), math.MaxInt64)
		for _, contract := range f.Contracts {
			some, err := collect(t, finishedNumbers, scanInt, contract,
				timeBound(f.FinishedFrom), before, fewNumbers+1)
			if err != nil {
				return nil, false, err
			}
			all = append(all, some...)
		}
	default:
		return nil, false, nil
	}
	return all, len(all) <= fewNumbers, err
}

// List is documented at the port.
func (t *Tx) List(f store.Filter) (p store.Page, err error) {
	if !isText(append([]string{f.Queue, f.Owner, f.Kind, f.Worker}, f.Contracts...)...) {
		return p, &job.Error{Kind: job.Invalid, Op: "list",
			Msg: "a text is not UTF-8 or holds a NUL character"}
	}
	sources, err := t.sources(&f)
	if err != nil {
		return p, err
	}
	if f.Limit <= 0 {
		f.Limit = math.MaxInt
	}
	if f.Before <= 0 {
		f.Before = math.MaxInt64
	}
	matching := t.matchingArgs(&f)
	var all []int64
	for _, s := range sources {
		some, end, err := t.numbersOf(s, &f, matching)
		if err != nil {
			return p, err
		}
		all = append(all, some...)
		if end != 0 && (p.Next == 0 || isBefore(end, p.Next, f.NewestFirst)) {
			p.Next = end
		}
	}
	sortNumbers(all, f.NewestFirst)
	if p.Next != 0 { // not all indexes were read beyond it
		all = slices.DeleteFunc(all, func(seq int64) bool {
			return isBefore(p.Next, seq, f.NewestFirst)
		})
	}
	if len(all) > f.Limit {
		all = all[:f.Limit]
		p.Next = all[f.Limit-1]
	}
	return t.loadPage(p, all, f.Brief)
}

// isBefore reports whether a stands before b in the order of a list.
func isBefore(a, b int64, newestFirst bool) bool {
	if newestFirst {
		return a > b
	}
	return a < b
}

func sortNumbers(all []int64, newestFirst bool) {
	slices.Sort(all)
	if newestFirst {
		slices.Reverse(all)
	}
}

// numbersOf returns the numbers of the first jobs of an index that match, f.Limit at most, and the
// number up to which it was read, 0 for all of it.
func (t *Tx) numbersOf(s source, f *store.Filter, matching []any) (all []int64, end int64,
	err error) {
	after, before, order := f.After, f.Before, 0
	if f.NewestFirst {
		order = 1
	}
	if s.listing == listNumbers {
		if s.numbers, end = part(s.numbers, f); len(s.numbers) == 0 {
			return nil, 0, nil
		}
		s.args = []any{t.s.Ints(s.numbers)}
	} else if f.Scan > 0 {
		if end, err = t.boundOf(s, f, order); err != nil {
			return nil, 0, err
		}
	}
	switch {
	case end != 0 && f.NewestFirst:
		after = max(after, end-1)
	case end != 0:
		before = min(before, end+1)
	}
	args := append([]any{after, before, f.Limit}, matching...)
	all, err = collect(t, s.listing.numbers[order], scanInt, append(args, s.args...)...)
	if len(all) == f.Limit && err == nil && len(all) > 0 {
		end = all[len(all)-1]
	}
	return all, end, err
}

// part returns those of the numbers that a List looks at, and the last of them, 0 if that is the
// end.
func part(numbers []int64, f *store.Filter) (some []int64, end int64) {
	sortNumbers(numbers, f.NewestFirst)
	some = slices.DeleteFunc(numbers, func(seq int64) bool {
		return seq <= f.After || seq >= f.Before
	})
	if f.Scan > 0 && len(some) > f.Scan {
		return some[:f.Scan], some[f.Scan-1]
	}
	return some, 0
}

// boundOf returns the number of the last of the f.Scan jobs that an index has from the beginning of
// the page on, 0 if it has fewer.
func (t *Tx) boundOf(s source, f *store.Filter, order int) (int64, error) {
	type bound struct{ n, lowest, highest int64 }
	found, err := collect(t, s.bound[order], func(rows *sql.Rows) (b bound, err error) {
		err = rows.Scan(&b.n, &b.lowest, &b.highest)
		return b, err
	}, append([]any{f.After, f.Before, f.Scan}, s.args...)...)
	if err != nil || found[0].n < int64(f.Scan) {
		return 0, err
	}
	if f.NewestFirst {
		return found[0].lowest, nil
	}
	return found[0].highest, nil
}

// loadPage loads the jobs of a page. One whose jobs have too large bodies together ends earlier.
func (t *Tx) loadPage(p store.Page, seqs []int64, brief bool) (store.Page, error) {
	if len(seqs) == 0 {
		return p, nil
	}
	bodies := store.AllBodies
	if brief {
		bodies = store.DefinitionAndFailure
	}
	found, err := collect(t, loads[load{bySeq, bodies, false}], newJobScanner(bodies).scan,
		t.s.Ints(seqs))
	if err != nil {
		return p, err
	}
	at := make(map[int64]int, len(seqs))
	for i, seq := range seqs {
		at[seq] = i
	}
	slices.SortFunc(found, func(a, b *job.Job) int { return at[a.Seq] - at[b.Seq] })
	p.Jobs = found
	if !brief {
		if p.Jobs, err = t.limitOutOfLine(store.MaxReadyBytes, found); err != nil {
			return store.Page{}, err
		}
		if len(p.Jobs) < len(found) {
			p.Next = p.Jobs[len(p.Jobs)-1].Seq
		}
	}
	return p, t.loadOutOfLine(bodies, p.Jobs)
}
