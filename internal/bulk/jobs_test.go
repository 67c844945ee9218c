package bulk_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
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
			f := &bulk.JobFilter{Contracts: []string{made}, Error: "none"}
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
