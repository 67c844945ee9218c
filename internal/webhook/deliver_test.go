package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/webhook"
)

// jobs are all deliveries there are.
func (n *node) jobs() []*job.Job {
	n.Helper()
	all, err := n.engine.List(n.ctx, store.Filter{JobType: webhook.Name})
	if err != nil {
		n.Fatal(err)
	}
	return all
}

// setEarlier gives each event those before it.
func setEarlier(all ...webhook.Event) []webhook.Event {
	for i := range all {
		var refs []webhook.EventRef
		for _, before := range all[:i] {
			if before.Chain == all[i].Chain {
				refs = append(refs, before.Ref)
			}
		}
		all[i].EarlierEvents = func(context.Context) ([]webhook.EventRef, error) {
			return refs, nil
		}
	}
	return all
}

func TestNotifyMakesOneDeliveryForEachURL(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		n.register("http://both", "a", "b")
		n.register("http://only-b", "b")
		n.register("http://both", "a") // the same URL once more
		if _, _, err := n.Register(n.ctx, otherOwner, "http://other", []string{"a", "b"},
			""); err != nil {
			t.Fatal(err)
		}
		events := setEarlier(n.event("j", 1, "a", "http://both"),
			n.event("j", 2, "b", "http://callback"), n.event("j", 3, "c", "http://callback"))
		want := []string{"j.1.a http://both", "j.2.b http://both", "j.2.b http://callback",
			"j.2.b http://only-b", "j.3.c http://callback"}
		for range 3 { // at least once each, in any cut
			n.deliver(events...)
			n.deliver(events[1:]...)
			var got []string
			for _, j := range n.jobs() {
				id, rest, _ := strings.Cut(strings.TrimPrefix(string(j.Definition),
					`{"event_id":"`), `"`)
				_, url, _ := strings.Cut(rest, `"url":"`)
				url, _, _ = strings.Cut(url, `"`)
				got = append(got, id+" "+url)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("G-FR-47 FR-189 FR-190 deliveries: %v, want %v", got, want)
			}
		}
	})
}

func TestNotifyAsksOnlyWhenSomebodyListens(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node()
	ev := n.event("j", 1, "a", "")
	ev.EarlierEvents = func(context.Context) ([]webhook.EventRef, error) {
		return nil, errors.New("asked")
	}
	n.deliver(ev)
	n.deliver()
	n.register("http://a", "b")
	n.deliver(ev)
	n.register("http://a", "a")
	if err := n.Deliver(n.ctx, []webhook.Event{ev}); err == nil || len(n.jobs()) != 0 {
		t.Errorf("the earlier events were not loaded: %v", err)
	}
}

// A subscription gets what happens from when it was made on.
func TestNotifyOfWhatWasBefore(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		before := n.event("j", 1, "a", "")
		n.clock.Advance(time.Millisecond)
		h, _ := n.register("http://a", "a")
		n.deliver(setEarlier(before, n.event("j", 2, "a", ""))...)
		if got := n.deliveries(h.ID); len(got) != 1 || got[0].EventID != "j.2.a" {
			t.Errorf("deliveries %+v", got)
		}
	})
}

// The deliveries of a chain to a URL wait one for the other, in whatever portions the events come.
func TestNotifyKeepsChains(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		n.register("http://odd", "a", "c")
		events := setEarlier(n.event("j", 1, "a", "http://cb"), n.event("j", 2, "b", "http://cb"),
			n.event("j", 3, "c", "http://cb"), n.event("k", 1, "a", ""),
			n.event("j", 4, "a", "http://cb"))
		n.deliver(events[0])
		n.deliver(events[1:3]...)
		n.deliver(events[3:]...)
		n.deliver(events...)
		order := map[string][]string{}
		for { // run the machine by hand: one claim brings the heads of all chains
			jobs, err := n.engine.Claim(n.ctx,
				engine.ClaimRequest{JobType: webhook.Name, Max: 100, Worker: "w"})
			if err != nil {
				t.Fatal(err)
			}
			if len(jobs) == 0 {
				break
			}
			seen := map[string]bool{}
			for i, j := range jobs {
				all := string(j.Definition)
				url := all[strings.Index(all, `"url":"`)+7:]
				line := url[:strings.Index(url, `"`)] + " " + all[len(`{"event_id":"`):][:1]
				if seen[line] {
					t.Errorf("two of %s at a time", line)
				}
				seen[line] = true
				order[line] = append(order[line], all[len(`{"event_id":"`):][2:3])
				on := []job.Cause{job.Succeeded, job.FailedForGood}[i%2]
				if _, err := n.engine.Finish(n.ctx, engine.Run{Run: j.Run},
					engine.Outcome{On: on}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := fmt.Sprint(order); got != "map[http://cb j:[1 2 3 4] http://odd j:[1 3 4] "+
			"http://odd k:[1]]" {
			t.Errorf("G-FR-48 order %s", got)
		}
	})
}

// No delivery waits for one that was pruned.
func TestNotifyAfterPruning(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false, func(c *webhook.Config) {
			c.Retention = time.Hour
		}).node()
		events := setEarlier(n.event("j", 1, "a", "http://cb"), n.event("j", 2, "a", "http://cb"))
		n.deliver(events[0])
		jobs, err := n.engine.Claim(n.ctx,
			engine.ClaimRequest{JobType: webhook.Name, Max: 1, Worker: "w"})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		if _, err := n.engine.Finish(n.ctx, engine.Run{Run: jobs[0].Run},
			engine.Outcome{On: job.Succeeded}); err != nil {
			t.Fatal(err)
		}
		n.clock.Advance(2 * time.Hour)
		if _, err := n.engine.Prune(n.ctx); err != nil || len(n.jobs()) != 0 {
			t.Fatal(n.jobs(), err)
		}
		n.deliver(events[1])
		if got := n.jobs(); len(got) != 1 || got[0].Phase != job.Ready {
			t.Errorf("deliveries %+v", got)
		}
	})
}

// Two nodes that deliver the same events at the same time make one delivery of each.
func TestNotifyCrowd(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		w := newWorld(t, database, false)
		nodes := []*node{w.node(), w.node()}
		nodes[0].register("http://a", "a")
		var events []webhook.Event
		for chain := range 20 {
			for i := range 5 {
				events = append(events, nodes[0].event(fmt.Sprint("c", chain), i, "a", "http://cb"))
			}
		}
		setEarlier(events...)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for part := range slices.Chunk(events, 7+i) {
					if err := nodes[i%2].Deliver(w.ctx, part); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		ready := 0
		jobs := nodes[0].jobs()
		for _, j := range jobs {
			if j.Phase == job.Ready {
				ready++
			}
		}
		if len(jobs) != 200 || ready != 40 {
			t.Errorf("%d deliveries, %d of them ready; want 200 and 40", len(jobs), ready)
		}
	})
}

// What no store can keep does not hold up what comes behind it.
func TestNotifyOfWhatCannotBeKept(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		unstorable := n.event("j", 1, "a\x00", "http://cb")
		n.deliver(setEarlier(n.event("i", 1, "a", "http://cb"), unstorable,
			n.event("j", 2, "a", "http://cb"))...)
		if got := len(n.jobs()); got != 2 || !strings.Contains(n.logs.text(), "is dropped") {
			t.Errorf("%d deliveries, logged %s", got, n.logs.text())
		}
	})
}
