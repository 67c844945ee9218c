package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/testkit"
)

// worked is a contract whose jobs are kept.
var worked = engine.JobType{Name: "worked", Machine: job.MustMachine(map[job.State]job.Phase{
	"queued": job.Ready, "running": job.Leased, "done": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "running", On: job.Succeeded, To: "done"},
	{From: "running", On: job.Failed, To: "queued"},
	{From: "running", On: job.Expired, To: "queued"},
	{From: "running", On: job.Released, To: "queued"},
})}

// workerItem is a worker as it is listed.
type workerItem struct {
	Name, Node, Kind, Contract string
	Queues                     []string
	Running                    []int64
	Slots                      *int
	FirstSeen                  time.Time `json:"first_seen"`
	LastSeen                   time.Time `json:"last_seen"`
	Succeeded, Failed          int64
	Version                    *string
	Draining, Gone             bool
}

type listOf[T any] struct {
	Items      []T
	NextCursor *string `json:"next_cursor"`
}

// submitWorked stores jobs of the contract worked.
func submitWorked(t *testing.T, e *engine.Engine, keys ...string) {
	t.Helper()
	var batch []engine.Submission
	for _, key := range keys {
		batch = append(batch, engine.Submission{Job: job.Job{
			ID: job.ID{JobType: "worked", Key: key}, Queue: "mail", Lease: time.Hour}})
	}
	if _, err := e.Submit(t.Context(), engine.Unique, batch); err != nil {
		t.Fatal(err)
	}
}

// claimWorked claims a job as a remote worker.
func claimWorked(t *testing.T, e *engine.Engine, worker string) ([]*job.Job, bool) {
	t.Helper()
	jobs, draining, err := e.ClaimRemote(t.Context(), engine.ClaimRequest{JobType: "worked",
		Queues: []string{"mail"}, Max: 1, Worker: worker}, "sdk/1")
	if err != nil {
		t.Fatal(err)
	}
	return jobs, draining
}

// TestWorkers (AD-040, AD-041, G-AD-13): workers of two nodes are listed, with what they execute
// and have done, and are drained by name on both.
func TestWorkers(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newWorld(t, p.Store, p.Clock, nil)
		other := testkit.NewEngine(t, p.Store, p.Clock, worked)
		testkit.Register(t, w.engine, worked)
		submitWorked(t, w.engine, "1", "2", "3")
		first, _ := claimWorked(t, w.engine, "host:1/a")
		second, _ := claimWorked(t, other, "host:2")
		w.clock.Advance(time.Minute)
		if _, err := other.Finish(t.Context(), engine.Run{ID: second[0].ID, Run: second[0].Run},
			engine.Outcome{On: job.Failed, Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		defer other.AddLocalWorker("worked", "n/1", []string{"mail"}, 2)()
		describe(t, other, p.Clock)
		all := get[listOf[workerItem]](t, w, "/admin/v1/workers").Items
		if len(all) != 3 {
			t.Fatalf("got %+v", all)
		}
		a, b, local := all[0], all[1], all[2]
		if a.Name != "host:1/a" || a.Node != w.engine.Node() || a.Kind != "outside" ||
			a.Contract != "worked" || a.Queues[0] != "mail" || len(a.Running) != 1 ||
			a.Running[0] != first[0].Seq || a.Slots != nil || *a.Version != "sdk/1" ||
			!a.LastSeen.Equal(testkit.StartTime) || a.Draining {
			t.Errorf("got %+v", a)
		}
		if b.Name != "host:2" || b.Node != other.Node() || b.Failed != 1 || b.Succeeded != 0 ||
			len(b.Running) != 0 || !b.FirstSeen.Equal(testkit.StartTime) ||
			!b.LastSeen.Equal(testkit.StartTime.Add(time.Minute)) {
			t.Errorf("got %+v", b)
		}
		if local.Name != "n/1" || local.Kind != "process" || *local.Slots != 2 ||
			*local.Version != "v1" {
			t.Errorf("got %+v", local)
		}
		checkWorkerBound(t, w, first[0].Seq)
		checkWorkerPages(t, w)
		checkWorkerDrain(t, w, other)
		if _, _, err := other.ClaimRemote(t.Context(), engine.ClaimRequest{JobType: "worked",
			Queues: []string{"none"}, Max: 1, Worker: "host:3"}, "sdk/1"); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(time.Minute)
		describe(t, other, p.Clock)
		silent := ""
		for _, known := range get[listOf[workerItem]](t, w, "/admin/v1/workers").Items {
			silent += fmt.Sprint(known.Name, " ", known.Gone, ", ")
		}
		// the second has ended its run and asked for nothing since
		if silent != "host:1/a false, host:1/a false, host:3 true, n/1 false, " {
			t.Errorf("AD-040 after a silent minute there are %s", silent)
		}
		w.clock.Advance(5 * time.Minute)
		if left := get[listOf[workerItem]](t, w, "/admin/v1/workers").Items; len(left) != 0 {
			t.Errorf("after five minutes there are %+v", left)
		}
	})
}

// checkWorkerBound proves that a list which has not looked at all running jobs says so.
func checkWorkerBound(t *testing.T, w *world, first int64) {
	t.Helper()
	submitWorked(t, w.engine, "4") // so that there are as many left as before
	second, _ := claimWorked(t, w.engine, "host:1/a")
	for limit, want := range map[int][]int64{1: {first}, 2: {first, second[0].Seq}} {
		w.api.LimitRuns(limit)
		got := get[struct {
			Items      []workerItem
			SearchedTo *time.Time `json:"searched_to"`
		}](t, w, "/admin/v1/workers")
		isCut := limit == 1
		if !slices.Equal(got.Items[0].Running, want) || (got.SearchedTo != nil) != isCut ||
			(isCut && !got.SearchedTo.Equal(testkit.StartTime)) {
			t.Errorf("AD-040 of %d running jobs: %+v", limit, got)
		}
	}
}

// describe writes the record of another node.
func describe(t *testing.T, e *engine.Engine, clock *testkit.Clock) *nodes.Node {
	t.Helper()
	n, err := nodes.New(nodes.Config{Engine: e, Elapsed: clock.Monotonic, Version: "v1",
		Contracts: []string{"worked"}, StoreKind: "made", Monitors: []*outage.Monitor{
			outage.NewMonitor(slog.New(slog.DiscardHandler), clock.Monotonic, outage.Endpoint{
				Name: "objects", Address: "s3.internal"})},
		Pool: func() (inUse, open, limit int) { return 2, 3, 16 }})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// checkWorkerPages goes through the workers one by one.
func checkWorkerPages(t *testing.T, w *world) {
	t.Helper()
	var names string
	for cursor := ""; ; {
		page := get[listOf[workerItem]](t, w, "/admin/v1/workers?limit=1"+cursor)
		names += page.Items[0].Name + " "
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
	if names != "host:1/a host:2 n/1 " {
		t.Errorf("the pages have %s", names)
	}
}

// checkWorkerDrain drains a worker by name, and asks as it does on both nodes.
func checkWorkerDrain(t *testing.T, w *world, other *engine.Engine) {
	t.Helper()
	post := func(path string) testkit.Reply {
		return w.do(t, w.api.Token(), "POST", "/admin/v1/workers/"+path, "")
	}
	post("nobody/drain").WantError(t, 404, "NOT_FOUND")
	post("host%3A1%2Fa/drain").WantStatus(t, 200)
	if err := other.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*engine.Engine{w.engine, other} {
		if jobs, draining := claimWorked(t, e, "host:1/a"); len(jobs) > 0 || !draining {
			t.Errorf("AD-041 a drained worker got %v, %t", jobs, draining)
		}
	}
	if all := get[listOf[workerItem]](t, w, "/admin/v1/workers").Items; !all[0].Draining {
		t.Errorf("got %+v", all[0])
	}
	post("host%3A1%2Fa/resume").WantStatus(t, 200)
	if jobs, _ := claimWorked(t, w.engine, "host:1/a"); len(jobs) != 1 {
		t.Errorf("AD-041 a resumed worker got %v", jobs)
	}
	entries := w.audit(t, "?target="+url.QueryEscape("worker:host:1/a")).Items
	if len(entries) != 2 || entries[0].Action != "worker.resume" ||
		string(entries[0].Before) != `{"draining":true}` ||
		string(entries[1].After) != `{"draining":true}` {
		t.Errorf("AD-006 got %+v", entries)
	}
}

// TestNodes (AD-042): nodes are listed as they are, also one that writes no more, and drained.
func TestNodes(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newWorld(t, p.Store, p.Clock, nil)
		other := testkit.NewEngine(t, p.Store, p.Clock)
		lead := func(context.Context) error { return nil }
		if err := other.AsLeader(t.Context(), "sweep", time.Hour, lead); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(time.Minute)
		described := describe(t, other, p.Clock)
		described.SetAddress("http://127.0.0.1:1")
		if err := described.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		path := "/admin/v1/nodes/" + url.PathEscape(other.Node())
		w.do(t, w.api.Token(), "POST", path+"/drain", "{}").WantStatus(t, 200)
		w.do(t, w.api.Token(), "POST", "/admin/v1/nodes/none/drain", "").
			WantError(t, 404, "NOT_FOUND")
		type node struct {
			Name, Version, Address string
			StartedAt              time.Time `json:"started_at"`
			LastSeen               time.Time `json:"last_seen"`
			Draining, Gone         bool
			Contracts              []string
			LeaderRoles            []string `json:"duties"`
			Goroutines, Memory     int64
			OpenFiles              *int `json:"open_files"`
			Store                  struct {
				Kind, State string
				Latency     *float64 `json:"latency_p95"`
				Pool        json.RawMessage
			}
			Stream, Objects json.RawMessage
		}
		w.clock.Advance(15*time.Second - time.Microsecond)
		for _, n := range get[listOf[node]](t, w, "/admin/v1/nodes").Items {
			if n.Gone {
				t.Errorf("within 15 seconds of its record %s is gone", n.Name)
			}
		}
		w.clock.Advance(time.Minute - 15*time.Second + time.Microsecond)
		var found *node
		all := get[listOf[node]](t, w, "/admin/v1/nodes").Items
		for i := range all {
			if all[i].Gone != (all[i].Name == other.Node()) {
				t.Errorf("%s: gone is %v", all[i].Name, all[i].Gone)
			}
			if all[i].Name == other.Node() {
				found = &all[i]
			}
		}
		if len(all) != 2 || found == nil {
			t.Fatalf("got %+v", all)
		}
		if found.Version != "v1" || found.Address != "http://127.0.0.1:1" ||
			!found.StartedAt.Equal(testkit.StartTime) || !found.Draining ||
			!found.LastSeen.Equal(testkit.StartTime.Add(time.Minute)) ||
			found.Contracts[0] != "worked" || len(found.LeaderRoles) != 1 ||
			found.LeaderRoles[0] != "sweep" || found.Goroutines == 0 || found.Memory == 0 ||
			found.Store.Kind != "made" || found.Store.State != "ok" ||
			found.Store.Latency == nil || string(found.Stream) != "null" {
			t.Errorf("got %+v", found)
		}
		if _, err := os.Stat("/proc/self/fd"); err == nil &&
			(found.OpenFiles == nil || *found.OpenFiles == 0) {
			t.Errorf("AD-042 the node has the open files %v", found.OpenFiles)
		}
		if string(found.Store.Pool) != `{"in_use":2,"open":3,"max":16}` || string(found.Objects) !=
			`{"kind":"objects","state":"ok","latency_p95":null,"pool":null}` {
			t.Errorf("AD-042 got the pool %s and the objects %s", found.Store.Pool, found.Objects)
		}
		if err := other.Refresh(t.Context()); err != nil || !other.IsNodeDraining() {
			t.Errorf("the node is not drained: %v", err)
		}
		w.do(t, w.api.Token(), "POST", path+"/resume", "").WantStatus(t, 200)
		if err := other.Refresh(t.Context()); err != nil || other.IsNodeDraining() {
			t.Errorf("the node is still drained: %v", err)
		}
		w.clock.Advance(4 * time.Minute)
		if all := get[listOf[node]](t, w, "/admin/v1/nodes").Items; len(all) != 1 {
			t.Errorf("five minutes after its last record there are %+v", all)
		}
	})
}
