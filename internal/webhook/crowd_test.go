package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// Two nodes send the events of many jobs to receivers that fail now and then: each gets all of
// them, those of a job in order and never two at a time.
func TestOrderIsKept(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		w := newWorld(t, database, true, func(c *webhook.Config) {
			c.BackoffBase, c.BackoffMax, c.MaxAttempts = 5*time.Millisecond, 20*time.Millisecond, 50
		})
		a, b := w.node(), w.node()
		var mu sync.Mutex
		flying := map[string]bool{}
		r := newReceiver(t, func(w http.ResponseWriter, r *http.Request, n int) {
			line := r.URL.Path + strings.Split(r.Header.Get("webhook-id"), ".")[0]
			mu.Lock()
			if flying[line] {
				t.Errorf("two requests of %s at a time", line)
			}
			flying[line] = true
			mu.Unlock()
			if n%3 == 0 {
				w.WriteHeader(500)
			}
			mu.Lock()
			delete(flying, line)
			mu.Unlock()
		})
		a.register(r.URL+"/hook", "a")
		const chains, events = 10, 6
		var all []webhook.Event
		for chain := range chains {
			for i := range events {
				all = append(all, a.event(fmt.Sprint("c", chain), i, "a", r.URL+"/cb"))
			}
		}
		setEarlier(all...)
		a.run()
		b.run()
		for part := range slices.Chunk(all, 7) {
			a.deliver(part...)
		}
		for done := 0; done < 2*chains*events; {
			var m job.State
			select {
			case moved := <-a.transitions:
				m = moved.To
			case moved := <-b.transitions:
				m = moved.To
			case <-w.ctx.Done():
				t.Fatalf("%d are done", done)
			}
			if m == "exhausted" {
				t.Error("a delivery was given up")
			}
			if m == "delivered" || m == "exhausted" {
				done++
			}
		}
		seen := map[string]int{}
		for _, q := range r.requests() {
			var i int
			chain, rest, _ := strings.Cut(q.header.Get("webhook-id"), ".")
			fmt.Sscanf(rest, "%d.", &i)
			line := q.path + " " + chain
			if i != seen[line] && i != seen[line]-1 { // the next, or the same again
				t.Errorf("G-FR-48 %s: event %d after %d", line, i, seen[line]-1)
			}
			seen[line] = max(seen[line], i+1)
		}
		for line, n := range seen {
			if n != events {
				t.Errorf("%s got %d of %d events", line, n, events)
			}
		}
		if len(seen) != 2*chains {
			t.Errorf("%d lines", len(seen))
		}
	})
}

// Receivers that stall with hundreds of deliveries each, and one with a URL of its own for each, do
// not delay another: it gets its events while they hold all they can, and none of theirs is lost.
func TestDeadReceiversDelayNobody(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		w := newWorld(t, database, true, func(c *webhook.Config) { c.Timeout = 10 * time.Minute })
		n := w.node()
		release := make(chan struct{})
		var stalled atomic.Int64
		stall := func(http.ResponseWriter, *http.Request, int) { stalled.Add(1); <-release }
		dead, many := newReceiver(t, stall), newReceiver(t, stall)
		free := sync.OnceFunc(func() { close(release) })
		t.Cleanup(free)
		good := newReceiver(t, nil)
		var all []webhook.Event
		for i := range 300 {
			all = append(all, n.event(fmt.Sprint("dead", i), 1, "a", dead.URL),
				n.event(fmt.Sprint("many", i), 1, "a", fmt.Sprint(many.URL, "/", i)))
		}
		n.deliver(all...)
		n.run()
		<-dead.ids // it stalls
		<-many.ids
		var wanted []webhook.Event
		for i := range 100 {
			wanted = append(wanted, n.event(fmt.Sprint("good", i), 1, "a", good.URL))
		}
		n.deliver(wanted...)
		n.awaitDone(100)
		if got := len(good.requests()); got != 100 {
			t.Errorf("FR-193 the good receiver got %d requests", got)
		}
		if got := stalled.Load(); got > 8 {
			t.Errorf("%d of 16 slots are held by receivers that do not answer", got)
		}
		left := 0
		for _, j := range n.jobs() {
			if j.Phase != job.Done {
				left++
			}
		}
		if left != 600 {
			t.Errorf("%d deliveries are left, want 600", left)
		}
		free()
	})
}

// What was pending, and what was under way, when a process died is delivered by the next (FR-195).
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"file", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, database, false)
			n := w.node()
			r := newReceiver(t, nil)
			h, secret := n.register(r.URL, "a")
			n.deliver(setEarlier(n.event("j", 1, "a", ""), n.event("j", 2, "a", ""),
				n.event("k", 1, "a", ""))...)
			n.claimOne() // and die with it
			n.engine.Close()
			if err := n.store.Close(); err != nil {
				t.Fatal(err)
			}
			n = w.node()
			for range 40 { // in steps: a leap past the lease would be a stall of the database
				n.clock.Advance(time.Second)
			}
			if _, err := n.engine.Expire(n.ctx); err != nil {
				t.Fatal(err)
			}
			n.run()
			n.awaitDone(3)
			got := r.eventIDs()
			slices.Sort(got)
			if fmt.Sprint(got) != "[j.1.a j.2.a k.1.a]" {
				t.Errorf("FR-195 delivered %v", got)
			}
			for _, q := range r.requests() {
				verified(t, secret, q)
			}
			if d := n.deliveries(h.ID); len(d) != 3 || len(d[2].Attempts) != 1 {
				t.Errorf("deliveries %+v", d)
			}
		})
	}
}

// Run that ends lets attempts under way finish and writes how they ended; it begins no other.
func TestStopIsGraceful(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node().run()
	release := make(chan struct{})
	r := newReceiver(t, func(http.ResponseWriter, *http.Request, int) { <-release })
	n.deliver(n.event("j", 1, "a", r.URL))
	<-r.ids
	stopped := make(chan struct{})
	go func() { n.stop(); close(stopped) }()
	n.deliver(n.event("k", 1, "a", r.URL))
	select {
	case <-stopped:
		t.Error("it stopped with an attempt under way")
	default:
	}
	close(release)
	<-stopped
	n.await("j.1.a", job.Succeeded)
}

// Deliveries are listed page by page, the newest first.
func TestDeliveryPages(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		h, _ := n.register("http://a", "a")
		var want, got []string
		for i := range 7 {
			n.deliver(n.event("j", i, "a", ""))
			want = append([]string{fmt.Sprintf("j.%d.a", i)}, want...)
		}
		pages := 0
		for before := int64(0); ; pages++ {
			page, next, err := n.Deliveries(n.ctx, owner, h.ID, "", before, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page {
				got = append(got, d.EventID)
			}
			if before = next; next == 0 {
				break
			}
		}
		if !slices.Equal(got, want) || pages != 2 {
			t.Errorf("listed %v, want %v", got, want)
		}
	})
}
