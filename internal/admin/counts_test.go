package admin_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// countFields are what jobs can be counted by.
var countFields = []string{"contract", "queue", "phase", "state", "kind", "worker"}

// counts reads all pages of a count: by contract and value, how many there are. Those that have
// none are left out.
func (w *jobsWorld) counts(t *testing.T, by string, query url.Values) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	query.Set("by", by)
	query.Set("limit", "4")
	for query.Del("cursor"); ; {
		page := get[struct {
			Items      []map[string]any
			NextCursor *string `json:"next_cursor"`
		}](t, w.world, "/admin/v1/counts?"+query.Encode())
		for _, i := range page.Items {
			n, isExact := i["count"].(float64)
			if !isExact {
				t.Errorf("AD-018 %v: %v is not exact", query, i)
			}
			if key := countKey(i, by); n != 0 {
				got[key] += int64(n)
			}
		}
		if page.NextCursor == nil {
			return got
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// countKey is the contract and the value of a count, or of a job as it is listed.
func countKey(i map[string]any, by string) string {
	if by == "phase" {
		return fmt.Sprint(i["phase"])
	}
	return fmt.Sprint(i["contract"], "/", i[by])
}

// listed returns all jobs that a query lists.
func (w *jobsWorld) listed(t *testing.T, query string) (all []map[string]any) {
	t.Helper()
	for cursor := ""; ; {
		page := get[jobsPage](t, w.world, "/admin/v1/jobs?limit=500"+query+cursor)
		for _, i := range page.Items {
			all = append(all, i)
		}
		if page.NextCursor == nil {
			return all
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

// wantCounts compares the counts by every field, with and without filters, with the jobs that are
// listed; by phase also with those that are listed as dead alone, as they are gone.
func (w *jobsWorld) wantCounts(t *testing.T) {
	t.Helper()
	all := w.listed(t, "")
	for _, i := range w.listed(t, "&phase=dead") {
		if i["state"] == "gone" {
			all = append(all, i)
		}
	}
	for _, filter := range []url.Values{{}, {"contract": {"taskflow"}}, {"contract": {"forgerun"}},
		{"queue": {"mail"}}, {"contract": {"relay"}, "queue": {"mail"}},
		{"contract": {"taskflow"}, "queue": {"other"}}} {
		for _, by := range countFields {
			want := map[string]int64{}
			for _, i := range all {
				isCounted := by == "phase" || i["state"] != "gone"
				if isCounted && (!filter.Has("contract") || filter.Get("contract") == i["contract"]) &&
					(!filter.Has("queue") || filter.Get("queue") == i["queue"]) {
					want[countKey(i, by)]++
				}
			}
			if got := w.counts(t, by, maps.Clone(filter)); !maps.Equal(got, want) {
				t.Errorf("AD-018 by %s, %v: counted %v, there are %v", by, filter, got, want)
			}
		}
	}
}

// AD-018, G-AD-10: counts by every field agree with the jobs that are there, in every phase, with
// those that are done.
func TestCounts(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.wantCounts(t)
		fillJobs(t, w)
		w.wantCounts(t)
		page := get[struct{ Items []map[string]any }](t, w.world, "/admin/v1/counts?by=phase")
		if text := fmt.Sprint(page.Items); text != "[map[count:1 phase:waiting] "+
			"map[count:5 phase:ready] map[count:1 phase:leased] map[count:1 phase:done] "+
			"map[count:2 phase:dead]]" {
			t.Errorf("AD-018 by phase: %s", text)
		}
		page = get[struct{ Items []map[string]any }](t, w.world,
			"/admin/v1/counts?by=state&contract=relay")
		if text := fmt.Sprint(page.Items); text != "[map[contract:relay count:2 state:queued] "+
			"map[contract:relay count:0 state:running]]" {
			t.Errorf("AD-018 by state: %s", text)
		}
	})
}

// AD-018: what a count does not mean is refused and named.
func TestCountsRefuse(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	for query, about := range map[string]string{"": "by is required: one of contract, queue",
		"by=": "by", "by=owner": "by must be one of", "by=state&by=kind": "by",
		"by=state&contract=no": "contract must be one of", "by=state&queue=": "queue",
		"by=state&queue=%00": "queue", "by=state&state=READY": "state", "by=kind&limit=0": "limit",
		"by=kind&limit=501": "limit", "by=kind&cursor=x": "cursor"} {
		w.do(t, w.api.Token(), "GET", "/admin/v1/counts?"+query, "").
			WantError(t, 400, "VALIDATION_ERROR", about)
	}
	w.do(t, "", "GET", "/admin/v1/counts?by=state", "").WantStatus(t, 401)
	w.do(t, readToken, "GET", "/admin/v1/counts?by=worker", "").WantStatus(t, 200)
}

// AD-018: counts stay exact through verbs, actions, dead letters, expired leases and maintenance in
// a random order, on two nodes where the store is shared, and each node counts the same.
func TestCountsOfAMix(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		m := mix{rand: rand.New(rand.NewPCG(18, 2026))}
		add := func(s store.Store) {
			w := &jobsWorld{}
			w.world = newWorld(t, s, p.Clock, func(c *admin.Config) {
				c.Shared = p.Reopen != nil
				w.addContracts(t, c)
			})
			m.nodes = append(m.nodes, w)
		}
		if add(p.Store); p.Reopen != nil {
			add(p.Reopen(t))
		}
		for step := range 120 {
			m.step(t, m.nodes[step%len(m.nodes)])
			if step%40 == 39 {
				for _, w := range m.nodes {
					w.wantCounts(t)
				}
			}
		}
	})
}

// mix does things at random.
type mix struct {
	rand  *rand.Rand
	nodes []*jobsWorld
	runs  []engine.Run
	made  int
}

// step does one thing.
func (m *mix) step(t *testing.T, w *jobsWorld) {
	t.Helper()
	queue := []string{"mail", "other", "third"}[m.rand.IntN(3)]
	switch m.made++; m.rand.IntN(9) {
	case 0, 1:
		w.submitJob(t, "taskflow", fmt.Sprintf(`{"name":"n","queue":%q,"retry_policy":
			{"max_attempts":2,"backoff_strategy":"FIXED","base_delay_seconds":60,
			"max_delay_seconds":60}}`, queue), "")
	case 2:
		w.submitJob(t, "relay", fmt.Sprintf(`{"queue":%q,"id":"%d","timeout":60,"max_retries":0,
			"payload":1,"run_at":%q}`, queue, m.made, w.clock.Now().Add(time.Duration(
			m.rand.IntN(3)-1)*time.Minute).Format(time.RFC3339)), "")
	case 3:
		m.submitRun(t, w)
	case 4, 5:
		m.claim(t, w)
	case 6:
		m.finish(t, w)
	case 7:
		m.act(t, w)
	default:
		w.clock.Advance(time.Duration(m.rand.IntN(90)) * time.Second)
		testkit.RunMaintenance(t, w.engine)
		m.mind(t, second(w.engine.Prune(t.Context())))
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// mind ends the test at an error, unless the job has moved on.
func (m *mix) mind(t *testing.T, err error) {
	t.Helper()
	switch job.KindOf(err) {
	case job.Conflict, job.RunLost, job.NotFound:
	default:
		if err != nil {
			t.Fatal(err)
		}
	}
}

// submitRun submits a job of ForgeRun.
func (m *mix) submitRun(t *testing.T, w *jobsWorld) {
	t.Helper()
	_, err := w.engine.Submit(t.Context(), engine.Unique, []engine.Submission{{Job: job.Job{
		ID:    job.ID{JobType: "forgerun", Key: fmt.Sprint(m.made)},
		Owner: w.client, Kind: []string{"EXECUTE", "DEFERRED"}[m.rand.IntN(2)], Queue: "default",
		Lease: time.Minute, MaxAttempts: 2}}})
	m.mind(t, err)
}

// claim claims a few jobs of a contract.
func (m *mix) claim(t *testing.T, w *jobsWorld) {
	t.Helper()
	jobs, err := w.engine.Claim(t.Context(), engine.ClaimRequest{Max: 2,
		JobType: []string{"taskflow", "relay", "forgerun"}[m.rand.IntN(3)],
		Worker:  fmt.Sprint("w", m.rand.IntN(3))})
	m.mind(t, err)
	for _, j := range jobs {
		m.runs = append(m.runs, engine.Run{ID: j.ID, Run: j.Run})
	}
}

// finish ends a run, which may be lost.
func (m *mix) finish(t *testing.T, w *jobsWorld) {
	t.Helper()
	if len(m.runs) == 0 {
		return
	}
	run := m.runs[m.rand.IntN(len(m.runs))]
	if run.ID.JobType == "forgerun" {
		m.mind(t, second(w.engine.Start(t.Context(), run)))
	}
	on := []job.Cause{job.Succeeded, job.Failed, job.FailedForGood}[m.rand.IntN(3)]
	m.mind(t, second(w.engine.Finish(t.Context(), run, engine.Outcome{On: on})))
}

// act lets an action happen to a job that allows it, or replays or discards a dead letter.
func (m *mix) act(t *testing.T, w *jobsWorld) {
	t.Helper()
	deadLetters := get[struct{ Items []struct{ ID int64 } }](t, w.world,
		"/admin/v1/dead-letters?limit=500").Items
	if n := len(deadLetters); n > 0 && m.rand.IntN(2) == 0 {
		path := fmt.Sprint("/admin/v1/dead-letters/", deadLetters[m.rand.IntN(n)].ID)
		if m.rand.IntN(2) == 0 {
			w.post(t, path+"/replay", "")
		} else {
			w.do(t, w.api.Token(), "DELETE", path, "")
		}
		return
	}
	items := get[jobsPage](t, w.world, "/admin/v1/jobs?limit=500").Items
	if len(items) == 0 {
		return
	}
	number := int64(items[m.rand.IntN(len(items))]["number"].(float64))
	d, err := w.api.JobDetail(t.Context(), number)
	m.mind(t, err)
	if err == nil && len(d.Actions) > 0 {
		w.act(t, number, d.Actions[m.rand.IntN(len(d.Actions))])
	}
}

// AD-018: by kind up to 100,000 jobs are counted of each and no more, and for 25 ms; by what the
// store keeps all of them.
func TestCountsAtLeast(t *testing.T) {
	t.Parallel()
	w := &jobsWorld{}
	p := testkit.InMemory(t)
	var elapsed, passed atomic.Int64 // passed between two looks at the clock
	w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
		c.Elapsed = func() time.Duration { return time.Duration(elapsed.Add(passed.Load())) }
		w.addContracts(t, c)
	})
	const limit, atOnce = 7000, 1000 // more than two windows
	if before := w.api.LimitCounts(limit); before != 100_000 {
		t.Errorf("AD-018: %d jobs are counted of a kind", before)
	}
	submitted := 0
	submit := func(contract, queue, kind string, n int) {
		t.Helper()
		batch := make([]engine.Submission, n)
		for i := range batch {
			submitted++
			batch[i].Job = job.Job{ID: job.ID{JobType: contract, Scope: queue,
				Key: fmt.Sprint(submitted)}, Queue: queue, Kind: kind,
				DueAt: p.Clock.Now().Add(time.Hour)}
		}
		if _, err := w.engine.Submit(t.Context(), engine.Unique, batch); err != nil {
			t.Fatal(err)
		}
	}
	for range limit / atOnce {
		submit("forgerun", "default", "CPU_BURST", atOnce)
		submit("relay", "q", "", atOnce)
	}
	want := func(contract, by, want string) {
		t.Helper()
		got := w.do(t, w.api.Token(), "GET", "/admin/v1/counts?contract="+contract+"&by="+by, "").
			WantStatus(t, 200)
		if text := fmt.Sprintf(`{"items":[{"contract":"%s"%s}],"next_cursor":null}`, contract,
			want); string(got.Body) != text {
			t.Errorf("AD-018 by %s: got %s, want %s", by, got.Body, text)
		}
	}
	want("forgerun", "kind", `,"kind":"CPU_BURST","count":7000`)
	submit("forgerun", "default", "CPU_BURST", 1)
	submit("relay", "q", "", 1)
	for range 2 {
		want("relay", "kind", `,"kind":null,"count":7001`)
		want("relay", "worker", `,"worker":null,"count":7001`)
		want("relay", "queue", `,"queue":"q","count":7001`)
		want("forgerun", "kind", `,"kind":"CPU_BURST","at_least":7000`)
		want("forgerun", "contract", `,"count":7001`)
		passed.Store(int64(5 * time.Millisecond)) // which is enough for two windows
	}
	passed.Store(int64(30 * time.Millisecond))
	want("forgerun", "kind", `,"kind":"CPU_BURST","at_least":2000`)
}
