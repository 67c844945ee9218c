package bulk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// AD-012: a page reads no more jobs than it may, says up to when it has looked, and its next page
// goes on there. All pages together have each job once.
func TestJobPagesAreBounded(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		start := n.clock.Now()
		n.submit(t, "q", 350)
		for _, oldest := range []bool{true, false} {
			f := &bulk.JobFilter{JobTypes: []string{made}, Error: "none"}
			page := bulk.JobPage{Oldest: oldest, Limit: 10, MaxJobs: 100}
			pages := 0
			for {
				found, err := n.ops.FindJobs(t.Context(), f, page)
				if err != nil || len(found.Jobs) > 0 {
					t.Fatalf("found %d: %v", len(found.Jobs), err)
				}
				pages++
				if found.Next == 0 {
					break
				}
				if found.SearchedTo.Before(start) || found.SearchedTo.After(start.Add(time.Hour)) {
					t.Errorf("AD-012 searched to %v", found.SearchedTo)
				}
				page.After = found.Next
			}
			if pages != 4 {
				t.Errorf("AD-012 there are %d pages", pages)
			}
			seen := map[int64]bool{}
			page = bulk.JobPage{Oldest: oldest, Limit: 7}
			f.Error = ""
			for next := int64(-1); next != 0; page.After = next {
				found, err := n.ops.FindJobs(t.Context(), f, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range found.Jobs {
					seen[j.Seq] = true
				}
				next = found.Next
			}
			if len(seen) != 350 {
				t.Errorf("AD-010 the pages have %d jobs", len(seen))
			}
		}
	})
}

// AD-012: a page says up to when it has looked also where the last job that it looked at is gone.
func TestSearchedToOfADeletedJob(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		for _, queue := range []string{"a", "b", "c"} {
			n.submit(t, queue, 250)
			n.clock.Advance(time.Minute)
		}
		for _, oldest := range []bool{true, false} {
			all := n.list(t, "")
			if !oldest {
				slices.Reverse(all)
			}
			last, near := all[49], all[48] // of the first window
			looks := 0
			n.onElapsed = func() {
				if looks++; looks == 1 { // the search begins
					return
				}
				_, err := n.engine.Change(t.Context(), last.ID, job.Removed, nil)
				if err != nil && !job.IsKind(err, job.NotFound) {
					t.Error(err)
				}
				n.clock.Advance(time.Second)
			}
			found, err := n.ops.FindJobs(t.Context(), &bulk.JobFilter{JobTypes: []string{made},
				Worker: "nobody"}, bulk.JobPage{Oldest: oldest, Limit: 10, MaxTime: 500 *
				time.Millisecond})
			n.onElapsed = nil
			if err != nil || found.Next != last.Seq || !found.SearchedTo.Equal(near.CreatedAt) {
				t.Errorf("AD-012 oldest %v: next is %d, searched to %v, want %d and %v: %v",
					oldest, found.Next, found.SearchedTo, last.Seq, near.CreatedAt, err)
			}
		}
	})
}

// AD-010: an id that is unique in its queue alone is found in each of very many queues, in order,
// once, beside what the filter selects otherwise.
func TestIDInManyQueues(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.ops.Contracts[0].Operators[0].IDsOfQueues = true
		var batch []engine.Submission
		for i := range 2100 {
			key := "other"
			if i%1000 == 7 {
				key = "one"
			}
			queue := "q" + string(rune('a'+i%26)) + time.Duration(i).String()
			batch = append(batch, engine.Submission{Job: job.Job{Queue: queue, Lease: time.Minute,
				ID: job.ID{JobType: made, Scope: queue, Key: key}}})
		}
		if _, err := n.engine.Submit(t.Context(), engine.Unique, batch); err != nil {
			t.Fatal(err)
		}
		for _, oldest := range []bool{true, false} {
			var found []int64
			page := bulk.JobPage{Oldest: oldest, Limit: 2}
			for next := int64(-1); next != 0; page.After = next {
				got, err := n.ops.FindJobs(t.Context(),
					&bulk.JobFilter{JobTypes: []string{made}, ID: "one"}, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range got.Jobs {
					found = append(found, j.Seq)
				}
				next = got.Next
			}
			if len(found) != 3 || (found[0] < found[1]) != oldest ||
				(found[1] < found[2]) != oldest {
				t.Errorf("AD-010 oldest %v: found %v", oldest, found)
			}
		}
	})
}

// searched is a store that keeps how many jobs with large bodies one read has loaded at most, and
// makes time pass with each read of all bodies.
type searched struct {
	store.Store
	clock  *testkit.Clock
	passes time.Duration

	mu   sync.Mutex
	peak int
}

func (s *searched) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(&searchedReader{r, s}) })
}

type searchedReader struct {
	store.Reader
	s *searched
}

func (r *searchedReader) Load(sel store.Selector) ([]*job.Job, error) {
	jobs, err := r.Reader.Load(sel)
	if sel.Bodies != store.AllBodies {
		return jobs, err
	}
	large := 0
	for _, j := range jobs {
		if j.OutOfLine != 0 {
			large++
		}
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.peak = max(r.s.peak, large)
	r.s.clock.Advance(r.s.passes)
	return jobs, err
}

// submitLarge stores jobs of a queue with payloads that are no part of their rows.
func (n *node) submitLarge(t *testing.T, queue string, count int) {
	t.Helper()
	for i := range count {
		_, err := n.engine.Submit(t.Context(), engine.Unique, []engine.Submission{{Job: job.Job{
			ID: job.ID{JobType: made, Key: fmt.Sprint(queue, i)}, Queue: queue,
			Lease: time.Minute, Payload: []byte(strings.Repeat("x", 20_000) + " Needle")}}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// AD-012: a search of texts holds few large bodies at a time, and none of what it has looked at.
func TestSearchHoldsFewBodies(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		s := &searched{Store: p.Store, clock: p.Clock}
		n := newNode(t, s, p.Clock)
		n.submit(t, "small", 30)
		n.submitLarge(t, "large", 40)
		found, err := n.ops.FindJobs(t.Context(),
			&bulk.JobFilter{JobTypes: []string{made}, Text: "needle"}, bulk.JobPage{Limit: 100})
		if err != nil || len(found.Jobs) != 40 {
			t.Fatalf("AD-012 found %d jobs: %v", len(found.Jobs), err)
		}
		for _, j := range found.Jobs {
			if j.Payload != nil || j.Queue != "large" {
				t.Fatalf("AD-012 job %s of %s is held with %d bytes", j.ID.Key, j.Queue,
					len(j.Payload))
			}
		}
		if s.peak != 8 {
			t.Errorf("AD-012 %d jobs with large bodies were loaded at once, want 8", s.peak)
		}
	})
}

// AD-012: a search of texts begins no read that would likely end behind its time, and reads at
// least once, so that each page goes on.
func TestSearchKeepsItsTime(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		s := &searched{Store: p.Store, clock: p.Clock}
		n := newNode(t, s, p.Clock)
		n.submitLarge(t, "a", 40)
		for _, tt := range []struct {
			passes, within time.Duration
			read           int
		}{
			{20 * time.Millisecond, 40 * time.Millisecond, 2 + 3},
			{25 * time.Millisecond, 50 * time.Millisecond, 2 + 2},
			{5 * time.Millisecond, 35 * time.Millisecond, 2 + 4 + 8 + 8 + 8 + 8 + 2},
			{time.Second, time.Second, 2},
		} {
			s.passes = tt.passes
			began := p.Clock.Monotonic()
			found, err := n.ops.FindJobs(t.Context(), &bulk.JobFilter{JobTypes: []string{made},
				Text: "none"}, bulk.JobPage{Limit: 10, MaxTime: 50 * time.Millisecond})
			if took := p.Clock.Monotonic() - began; err != nil || took != tt.within ||
				found.Read != tt.read || (found.Next == 0) != (tt.read == 40) {
				t.Errorf("AD-012 with reads of %v it took %v and read %d, next is %d: %v", tt.passes,
					took, found.Read, found.Next, err)
			}
		}
	})
}

// AD-012, AD-020: a dry run of a search of texts ends after half a second, and says how far it has
// come; the sample and the count are of the jobs that were looked at. Any other one has five
// seconds.
func TestDryRunOfASearchIsBounded(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		s := &searched{Store: p.Store, clock: p.Clock}
		n := newNode(t, s, p.Clock)
		n.submitLarge(t, "a", 5)
		at := p.Clock.Now()
		p.Clock.Advance(time.Minute)
		n.submitLarge(t, "b", 300)
		dryRun := func(f bulk.JobFilter) bulk.Preview {
			t.Helper()
			f.JobTypes = []string{made}
			seen, err := n.ops.Preview(t.Context(), bulk.Request{Action: contract.ActionRetry,
				Jobs: &f}, bulk.MaxSearchTime)
			if err != nil {
				t.Fatal(err)
			}
			return seen
		}
		if seen := dryRun(bulk.JobFilter{Text: "needle"}); seen.Matching != 305 || seen.More ||
			!seen.SearchedTo.IsZero() {
			t.Errorf("AD-020 a search that comes to its end saw %+v", seen)
		}
		s.passes = 50 * time.Millisecond // for each read: of two jobs, four, then eight
		seen := dryRun(bulk.JobFilter{Text: "needle"})
		if seen.Matching != 70 || seen.Read != 70 || !seen.More || len(seen.Jobs) != 10 ||
			!seen.SearchedTo.Equal(at.Add(time.Minute)) {
			t.Errorf("AD-012 a search that is bounded saw %d, more %v, to %v", seen.Matching,
				seen.More, seen.SearchedTo)
		}
		if seen := dryRun(bulk.JobFilter{Text: "nothing"}); seen.Matching != 0 || !seen.More ||
			seen.SearchedTo.IsZero() {
			t.Errorf("AD-012 a search that finds nothing in time saw %+v", seen)
		}
		if seen := dryRun(bulk.JobFilter{Queue: "b"}); seen.Matching != 300 || seen.More {
			t.Errorf("AD-020 a dry run without texts saw %d, more %v", seen.Matching, seen.More)
		}
		s.passes = 0
		n.submit(t, "c", 9000)
		n.onElapsed = func() { p.Clock.Advance(time.Second) }
		if seen := dryRun(bulk.JobFilter{Queue: "c"}); seen.Matching == 0 || seen.Matching >= 9000 ||
			!seen.More || len(seen.Jobs) != 10 {
			t.Errorf("AD-020 a dry run of a slow store saw %d, more %v", seen.Matching, seen.More)
		}
	})
}
