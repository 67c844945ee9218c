package admin

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Jobs are counted from what the store keeps of queues, as far as that says it: these numbers are
// exact, and cost the same however many jobs there are. What it does not say is counted one by one,
// for maxCountTime and up to maxCounted; a count that ends there is answered as at_least.
//
//	by contract, queue, phase ─▶ countQueues ─▶ the counters of queues
//	by kind ───────────────────▶ countKinds ──▶ the same, for jobs that all have one kind or none
//	                                  └ others ┐
//	by state, worker ──────────▶ countField ◀──┘─▶ Engine.CountJobs
//
// A contract that clients know may be several job types, whose counts are added up (countSums).

// countRoutes is the route that counts jobs.
func (a *API) countRoutes() []route {
	return []route{{method: "GET", pattern: apiPrefix + "/counts", action: "job.count",
		handle: a.listCounts, query: httpapi.PageQuery("by", "contract", "queue")}}
}

// What jobs are counted by. The words are also the names of the members that have the values.
const (
	ByContract = "contract"
	ByQueue    = "queue"
	ByPhase    = "phase"
	ByState    = "state"
	ByKind     = "kind"
	ByWorker   = "worker"
)

var countFields = []string{ByContract, ByQueue, ByPhase, ByState, ByKind, ByWorker}

// CountQuery asks for counts of jobs. Contract and Queue are filters; empty ones select all.
type CountQuery struct{ By, Contract, Queue string }

// JobCount is how many jobs have one value of the field that they are counted by.
type JobCount struct {
	Contract string // empty where phases are counted
	Value    string // empty where contracts are counted, and for jobs without a kind or worker
	Jobs     int64
	// Gone is how many of Jobs, in the phase dead, are deleted and left an open dead letter.
	Gone    int64
	AtLeast bool // there may be more
}

// sortKey orders counts: by contract and value, phases as jobs pass through them.
func (n *JobCount) sortKey() string {
	if n.Contract == "" {
		return strconv.Itoa(slices.Index(phaseNames, n.Value))
	}
	return n.Contract + "/" + n.Value
}

var countPages = newPages(nameCursor("counts"))

// listCounts is GET /admin/v1/counts (AD-018).
func (a *API) listCounts(c *httpapi.Call) error {
	var q CountQuery
	if err := firstError(readChoice(c, "by", &q.By, countFields...),
		readText(c, "contract", &q.Contract), readText(c, "queue", &q.Queue)); err != nil {
		return err
	}
	limit, after, err := countPages.Read(c)
	if err != nil {
		return err
	}
	if q.By == "" {
		return invalid("by is required: one of " + strings.Join(countFields, ", "))
	}
	all, err := a.Counts(c.Context(), q)
	if err != nil {
		return err
	}
	page, next := pageOf(all, (*JobCount).sortKey, &countPages, after, limit)
	o := newList(len(page), next, func(i int, o *strictjson.Object) { page[i].write(o, q.By) })
	sendObject(c, http.StatusOK, &o)
	return nil
}

// write writes the members of a count.
func (n *JobCount) write(o *strictjson.Object, by string) {
	if by != ByPhase {
		o.Text("contract", n.Contract)
	}
	if by != ByContract {
		o.Optional(by, n.Value)
	}
	if n.AtLeast {
		o.Int("at_least", n.Jobs)
	} else {
		o.Int("count", n.Jobs)
	}
}

// maxCounted is up to how many jobs are counted one by one, and maxCountTime for how long.
const (
	maxCounted   = 100_000
	maxCountTime = 12 * time.Millisecond
)

// Counts counts the jobs that are stored, by contract, queue or phase from what the store keeps, by
// state, kind or worker as Engine.CountJobs does (AD-018). By phase alone those are counted too
// that are deleted and left an open dead letter, as lists of dead jobs have them. Contracts, phases
// and states that have none are counted too. They are ordered by sortKey.
func (a *API) Counts(ctx context.Context, q CountQuery) ([]JobCount, error) {
	contracts, err := a.jobTypesOf(q.Contract)
	if err != nil {
		return nil, err
	}
	s := countSums{}
	switch q.By {
	case ByState:
		err = a.countField(ctx, &q, contracts, store.ByState, s)
	case ByKind:
		err = a.countKinds(ctx, &q, contracts, s)
	case ByWorker:
		err = a.countField(ctx, &q, contracts, store.ByWorker, s)
	default:
		err = a.countQueues(ctx, &q, contracts, s)
	}
	all := make([]JobCount, 0, len(s))
	for n := range maps.Values(s) {
		all = append(all, *n)
	}
	slices.SortFunc(all, func(x, y JobCount) int { return cmp.Compare(x.sortKey(), y.sortKey()) })
	return all, err
}

// countSums has the counts by contract and value. The job types of one contract are added up.
type countSums map[[2]string]*JobCount

func (s countSums) add(contract, value string, n int64, atLeast bool) {
	key := [2]string{contract, value}
	if s[key] == nil {
		s[key] = &JobCount{Contract: contract, Value: value}
	}
	s[key].Jobs += n
	s[key].AtLeast = s[key].AtLeast || atLeast
}

// phaseNames are the phases in the order in which jobs pass through them.
var phaseNames = []string{job.Waiting.String(), job.Ready.String(), job.Leased.String(),
	job.Done.String(), phaseDead}

// countQueues counts by what the counts of queues have.
func (a *API) countQueues(ctx context.Context, q *CountQuery, contracts []string,
	s countSums) error {
	queues, err := a.countTotals(ctx, q, contracts, q.By != ByQueue)
	if err != nil {
		return err
	}
	for _, name := range contracts {
		if q.By == ByContract {
			s.add(contract.PublicName(name), "", 0, false)
		}
	}
	for _, name := range phaseNames {
		if q.By == ByPhase {
			s.add("", name, 0, false)
		}
	}
	for i := range queues {
		n := &queues[i]
		public := contract.PublicName(n.JobType)
		if !slices.Contains(contracts, n.JobType) {
			continue
		}
		switch {
		case q.By == ByContract:
			s.add(public, "", n.Jobs(), false)
		case q.By == ByPhase:
			for i, jobs := range a.phasesOf(n) {
				s.add("", phaseNames[i], jobs, false)
			}
			if !a.Engine.KeepsDeadJobs(n.JobType) {
				s[[2]string{"", phaseDead}].Gone += n.Dead
			}
		case n.Jobs() != 0:
			s.add(public, n.Queue, n.Jobs(), false)
		}
	}
	return nil
}

// countTotals returns the counts of the queues that a query selects, or their sums for each
// contract.
func (a *API) countTotals(ctx context.Context, q *CountQuery, contracts []string,
	sums bool) (all []job.QueueCount, err error) {
	if q.Queue == "" {
		return a.Engine.CountQueues(ctx, store.QueueSelector{Sums: sums})
	}
	for _, name := range contracts {
		one, err := a.Engine.CountQueues(ctx, store.QueueSelector{JobType: name, Queue: q.Queue})
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

// phasesOf returns how many jobs of a queue are in each phase of phaseNames. Where jobs do not stay
// when they are given up, those are dead whose open dead letters are all that is left of them.
func (a *API) phasesOf(n *job.QueueCount) []int64 {
	done := n.Done
	if a.Engine.KeepsDeadJobs(n.JobType) {
		done -= n.Dead
	}
	return []int64{n.Waiting + n.Delayed, n.Ready, n.Leased, done, n.Dead}
}

// countField counts by a field of the jobs, in the words of their contracts.
func (a *API) countField(ctx context.Context, q *CountQuery, contracts []string,
	by store.JobField, s countSums) error {
	if by == store.ByState {
		for _, item := range a.contractItems() {
			for _, state := range item.states {
				if q.Contract == "" || q.Contract == item.name {
					s.add(item.name, state, 0, false)
				}
			}
		}
	}
	startedAt, kinds := a.Elapsed(), map[string][]string{}
	for _, name := range contracts {
		kinds[name] = a.operatorOf(name).Kinds
	}
	counted, err := a.Engine.CountJobs(ctx, engine.CountQuery{JobTypes: contracts, Queue: q.Queue,
		By: by, Limit: a.maxCounted, Kinds: kinds, UsesFailedDeps: a.usesFailedDeps,
		ShouldStop: func() bool { return a.Elapsed()-startedAt > maxCountTime }})
	for _, n := range counted {
		value := n.Value
		if by == store.ByState {
			j := job.Job{State: job.State(n.Value)}
			if n.FailedDeps {
				j.FailedDeps = 1
			}
			value = a.operatorOf(n.JobType).StateOf(&j)
		}
		s.add(contract.PublicName(n.JobType), value, n.Jobs, n.AtLeast)
	}
	return err
}

// usesFailedDeps reports whether the contract's word for a state depends on whether dependencies
// have failed.
func (a *API) usesFailedDeps(name string, s job.State) bool {
	o := a.operatorOf(name)
	return o.StateOf(&job.Job{State: s}) != o.StateOf(&job.Job{State: s, FailedDeps: 1})
}

// countKinds counts by kind. All jobs of some sorts have one kind, or none.
func (a *API) countKinds(ctx context.Context, q *CountQuery, contracts []string,
	s countSums) error {
	var others []string
	kinds := map[string]string{}
	for _, name := range contracts {
		if o := a.operatorOf(name); o.Kind != "" || o.HasNoKinds {
			kinds[name] = o.Kind
		} else {
			others = append(others, name)
		}
	}
	queues, err := a.countTotals(ctx, q, contracts, true)
	if err != nil {
		return err
	}
	for _, n := range queues {
		kind, known := kinds[n.JobType]
		if known && n.Jobs() != 0 {
			s.add(contract.PublicName(n.JobType), kind, n.Jobs(), false)
		}
	}
	return a.countField(ctx, q, others, store.ByKind, s)
}
