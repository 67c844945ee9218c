package bulk_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// AD-016, TX-006: an operation on many jobs skips those whose workers have committed the ends of
// their runs, although no node has carried these out yet: they end as recorded. While that is not
// possible on this node the operation waits, and has changed none of them.
func TestRecordedEnds(t *testing.T) {
	t.Parallel()
	p := testkit.OnPostgres(t)
	db := pgtest.DB(t, p.URL)
	n := newNode(t, p.Store, p.Clock)
	for _, action := range []string{contract.ActionRelease, contract.ActionDelete,
		contract.ActionRetry} {
		n.submit(t, action, 5)
		for i := range 4 {
			id := job.ID{JobType: made, Key: fmt.Sprintf("%s-%06d", action, i)}
			if _, err := n.engine.Retry(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
		}
		claimed, err := n.engine.Claim(t.Context(), engine.ClaimRequest{JobType: made,
			Queues: []string{action}, Max: 10, Worker: "w"})
		if err != nil || len(claimed) != 4 {
			t.Fatal(len(claimed), err)
		}
		want := map[string]job.State{claimed[3].ID.Key: "running",
			fmt.Sprintf("%s-%06d", action, 4): "failed"}
		for i, call := range []string{"complete($1)", "complete($1)", "fail($1,'no',true)"} {
			want[claimed[i].ID.Key] = []job.State{"done", "done", "failed"}[i]
			if _, err := db.Exec("SELECT "+call, claimed[i].Run.String()); err != nil {
				t.Fatal(err)
			}
		}
		n.clock.Advance(time.Second) // what has changed at the same time is passed over
		id := n.start(t, bulk.Request{Action: action}, action)
		if action == contract.ActionRelease {
			want[claimed[3].ID.Key] = "queued"
			n.refusesEnds = errors.New("not on this node")
			n.runOnce(t)
			n.want(t, id, bulk.Running, 1, 0, 0) // the one without a recorded end
			n.refusesEnds = nil
			n.wait(t, 2*time.Second)
		}
		n.runOnce(t)
		n.want(t, id, bulk.Done, 1, 4, 0)
		if _, err := n.engine.CarryOutEnds(t.Context()); err != nil {
			t.Fatal(err)
		}
		switch last := fmt.Sprintf("%s-%06d", action, 4); action {
		case contract.ActionDelete:
			delete(want, last)
		case contract.ActionRetry:
			want[last] = "queued"
		}
		jobs := n.list(t, action)
		if len(jobs) != len(want) {
			t.Errorf("TX-006 %s: %d jobs are left, want %d", action, len(jobs), len(want))
		}
		for _, j := range jobs {
			if j.State != want[j.ID.Key] {
				t.Errorf("TX-006 %s: job %s is %s, want %s", action, j.ID.Key, j.State, want[j.ID.Key])
			}
		}
	}
}
