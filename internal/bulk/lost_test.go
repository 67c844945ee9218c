package bulk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// AD-021: of a batch in which one action could not be done, because the store took nothing then,
// that action is done by the next try, also where the limit or the canaries make the next batch a
// smaller one.
func TestLostWithinABatch(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		for name, r := range map[string]bulk.Request{"limit": {Limit: 10}, "canary": {Canary: 10}} {
			t.Run(name, func(t *testing.T) {
				n := newNode(t, p.Store, p.Clock)
				n.submit(t, name, 10)
				r.Action = contract.ActionRerun
				id := n.start(t, r, name)
				lost := n.list(t, name)[4].ID
				n.rerunFails = func(j *job.Job) error {
					if j.ID == lost {
						return errKilled
					}
					return nil
				}
				n.runOnce(t)
				n.want(t, id, bulk.Running, 9, 0, 0)
				n.rerunFails = nil
				for range 3 {
					n.wait(t, 2*time.Second)
					n.runOnce(t)
				}
				for _, j := range n.list(t, name) {
					n.wantRerunOnce(t, j)
				}
			})
		}
	})
}

// AD-012, AD-021: where the next try reads a shorter page, as the search of a text takes longer
// then, what was done beyond that page does not take what is between along.
func TestLostBeyondAShorterPage(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		batch := make([]engine.Submission, 200)
		for i := range batch {
			batch[i].Job = job.Job{Queue: "a", Lease: time.Minute,
				ID: job.ID{JobType: made, Key: fmt.Sprintf("%06d", i)}}
			if i%2 == 0 {
				batch[i].Job.Payload = []byte("wanted")
			}
		}
		if _, err := n.engine.Submit(t.Context(), engine.Unique, batch); err != nil {
			t.Fatal(err)
		}
		o, err := n.ops.Start(t.Context(), n.clock.Now(), bulk.Request{Action: contract.ActionRerun,
			Jobs: &bulk.JobFilter{JobTypes: []string{made}, Queue: "a", Text: "wanted"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		lost := batch[150].Job.ID
		n.rerunFails = func(j *job.Job) error {
			if j.ID == lost {
				return errKilled
			}
			return nil
		}
		n.runOnce(t)
		n.want(t, o.ID, bulk.Running, 99, 0, 0)
		n.rerunFails, n.onElapsed = nil, func() { n.clock.Advance(time.Second) }
		n.wait(t, 2*time.Second)
		n.runOnce(t)
		n.want(t, o.ID, bulk.Done, 100, 0, 0)
		for i, j := range n.list(t, "a") {
			if i%2 == 0 {
				n.wantRerunOnce(t, j)
			}
		}
	})
}

// wantRerunOnce checks that a job was rerun once.
func (n *node) wantRerunOnce(t *testing.T, j *job.Job) {
	t.Helper()
	made, err := n.engine.List(t.Context(), store.Filter{JobType: made, Owner: j.ID.Key})
	if err != nil || len(made) != 1 {
		t.Errorf("AD-021 job %s was rerun %d times, %v", j.ID.Key, len(made), err)
	}
}
