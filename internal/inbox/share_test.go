package inbox_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// TX-002: the commit of a producer wakes a node, and where the notification is lost by the
// look of each second at what other nodes have written. Each is enough by itself.
func TestWakes(t *testing.T) {
	t.Parallel()
	for name, wakes := range map[string]func(ctx context.Context, w *world){
		"notified": func(ctx context.Context, w *world) { w.engine.Listen(ctx) },
		"looks": func(ctx context.Context, w *world) {
			for ctx.Err() == nil { // as maintenance does, which has a pause between two looks
				_ = w.engine.Refresh(ctx)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			application := rand.Text()
			w.url += "&application_name=" + application
			w.node = w.newNode(nodeConfig{})
			ctx, stop := context.WithCancel(context.Background())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			running.Go(func() { wakes(ctx, w) })
			running.Go(func() { w.Run(ctx) })
			if name == "notified" {
				testkit.WaitUntil(t, "the node to listen", func() bool {
					var n int
					w.must(w.db.QueryRow(`SELECT count(*) FROM pg_stat_activity
						WHERE application_name=$1 AND query='LISTEN millrace' AND state='idle'`,
						application).Scan(&n))
					return n > 0
				})
			}
			for i := range 3 {
				id := w.submit(w.db, "relay", fmt.Sprintf(relayJob, fmt.Sprint(i)))
				testkit.WaitUntil(t, "the request to be submitted", func() bool {
					return w.see(id).state == "submitted"
				})
			}
		})
	}
}

// TX-002: many transactions, and large ones beside them, are taken in batches.
func TestBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const single, each = 600, 40
	_, err := w.db.Exec(`SELECT submit('relay',json_build_object('queue','q','id',n::text,
		'timeout',5,'payload',n)) FROM generate_series(1,1200) AS n`)
	w.must(err)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range single / 8 {
				w.submit(w.db, "relay", fmt.Sprintf(relayJob, fmt.Sprint("single", i, "-", j)))
			}
		})
	}
	all.Wait()
	tx := w.begin()
	large := strings.Repeat("x", 1<<20)
	for i := range each {
		w.submit(tx, "relay", fmt.Sprintf(`{"queue":"q","id":"large%02d","timeout":5,"payload":%q}`,
			i,
			large))
	}
	w.must(tx.Commit())
	w.run(w)
	ids := w.jobs("relay")
	if len(ids) != 1200+single+each {
		t.Errorf("TX-002 %d jobs, want %d", len(ids), 1200+single+each)
	}
	var before int
	var larges []string
	for _, id := range ids {
		var n int
		switch {
		case strings.HasPrefix(id, "large"):
			larges = append(larges, id)
		case !strings.HasPrefix(id, "single"):
			if _, err := fmt.Sscan(id, &n); err != nil || n != before+1 {
				t.Fatalf("TX-002 %s comes after %d: %v", id, before, err)
			}
			before = n
		}
	}
	if !slices.IsSorted(larges) {
		t.Errorf("TX-002 the large ones are %v", larges)
	}
}

// TX-002: transactions that were delayed, or that a node had which is gone, are taken in their turn
// while new ones come faster than nodes take them. Where there are no new ones, all of them are.
func TestOrderOfThoseThatComeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	take := func(n int) (taken []job.InboxTransaction) {
		t.Helper()
		taken, err := w.engine.ClaimInbox(ctx, n, time.Second, nil, 0)
		w.must(err)
		return taken
	}
	submit := func(n int) {
		for i := range n {
			w.submit(w.db, "relay", fmt.Sprintf(relayJob, fmt.Sprint(i)))
		}
	}
	submit(150)
	if first := take(200); len(first) != 150 {
		t.Fatalf("TX-002 %d of 150 were taken", len(first))
	}
	w.clock.Advance(time.Second)
	submit(10)
	again := 0
	for _, one := range take(4) {
		if !one.IsNew {
			again++
		}
	}
	if again != 2 {
		t.Errorf("TX-002 2 of 4 were to be such that come again: %d are", again)
	}
	w.clock.Advance(time.Second)
	w.run(w)
	if n := len(w.jobs("relay")); n != 150 {
		t.Errorf("TX-002 %d jobs of 150 ids", n)
	}
	var left int
	w.must(w.db.QueryRow("SELECT count(*) FROM inbox_transactions").Scan(&left))
	if left != 0 {
		t.Errorf("TX-002 %d transactions are left", left)
	}
}

// TX-002: no read of requests has more than a bound of bytes, but at least one request.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	tx := w.begin()
	for range 5 {
		w.submit(tx, "relay", `{"a":"`+strings.Repeat("x", 1000)+`"}`)
	}
	w.must(tx.Commit())
	taken, err := w.engine.ClaimInbox(ctx, 10, 0, nil, 0)
	w.must(err)
	numbers := []int64{taken[0].Number}
	for bytes, want := range map[int64]int{1: 1, 1008: 1, 1009: 2, 4100: 5, 1 << 20: 5} {
		got, err := w.engine.ReadInbox(ctx, numbers, 10, bytes)
		if err != nil || len(got) != want {
			t.Errorf("TX-002 %d bytes: %d requests, want %d: %v", bytes, len(got), want, err)
		}
	}
	if got, err := w.engine.ReadInbox(ctx, numbers, 3, 1<<20); err != nil || len(got) != 3 {
		t.Errorf("TX-002 %d requests of 3: %v", len(got), err)
	}
}

// TX-002: a job with dependencies has a transaction of its own, in its place in the chain.
func TestLineWithDependencies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.submit(w.db, "taskflow", `{"name":"n","queue":"q","payload":"0"}`)
	w.run(w)
	tx := w.begin()
	for i := range 9 {
		more := ""
		if i%3 == 1 {
			more = fmt.Sprintf(`,"dependencies":[%q]`, w.see(first).jobID)
		}
		w.submit(tx, "taskflow", fmt.Sprintf(`{"name":"n","queue":"q","payload":"%d"%s}`, i+1,
			more))
	}
	w.must(tx.Commit())
	w.run(w)
	var order string
	w.must(w.db.QueryRow(`SELECT string_agg(btrim(convert_from(payload,'UTF8'),'"'),' ' ORDER BY seq)
		FROM jobs`).Scan(&order))
	if order != "0 1 2 3 4 5 6 7 8 9" {
		t.Errorf("TX-002 the order is %s", order)
	}
	var edges int
	w.must(w.db.QueryRow("SELECT count(*) FROM edges").Scan(&edges))
	if edges != 3 {
		t.Errorf("TX-002 %d dependencies are stored, want 3", edges)
	}
}

// TX-001: a contract that has had the same request before, by a key of its own, answers with the
// job of that: it is the job of the request.
func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"))
	w.run(w)
	w.node = w.newNode(nodeConfig{relay: func(submitFunc) submitFunc {
		return func(ctx context.Context, _ contract.Request) (*job.Job, error) {
			return w.engine.Get(ctx, job.ID{JobType: "relay", Scope: "q", Key: "1"})
		}
	}})
	second := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"))
	w.run(w)
	if a, b := w.request(first), w.request(second); b.State != job.InboxSubmitted ||
		b.Job != a.Job || b.JobID != "1" {
		t.Errorf("TX-001 the repetition is %+v of %+v", b, a)
	}
}
