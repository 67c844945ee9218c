package admin_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// parts are the engine's name of the jobs of a contract that clients know as "whole". Clients know
// two words for its three states.
const parts = "whole.part"

var partMachine = job.MustMachine(map[job.State]job.Phase{"part_ready": job.Ready,
	"part_leased": job.Leased, "part_over": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "part_ready"},
	{From: "part_ready", On: job.Claimed, To: "part_leased"},
	{From: "part_leased", On: job.Expired, To: "part_ready"},
	{From: "part_leased", On: job.Succeeded, To: "part_over"},
	{From: "part_ready", On: job.Canceled, To: "part_over"},
})

// withParts runs a test with a node that has such a contract. What delete and release are about
// moves on after it was read.
func withParts(t *testing.T, test func(t *testing.T, w *jobsWorld)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &jobsWorld{}
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
			c.Shared = p.Reopen != nil
			jobs := engine.JobType{Name: parts, Machine: partMachine}
			testkit.Register(t, c.Engine, jobs)
			cancel := contract.Change(c.Engine, contract.ActionCancel, job.Canceled, nil, "part_ready")
			overtaken := func(do func(context.Context, *job.Job) (*job.Job, error)) func(
				context.Context, *job.Job) (*job.Job, error) {
				return func(ctx context.Context, j *job.Job) (*job.Job, error) {
					if _, err := c.Engine.Cancel(t.Context(), j.ID); err != nil {
						return nil, err
					}
					return do(ctx, j)
				}
			}
			c.Contracts = []*contract.Contract{{Name: "whole", JobTypes: []engine.JobType{jobs},
				Operators: []contract.Operator{{JobType: parts, Answer: httpapi.ErrorTable{}.Answer,
					States: map[string][]job.State{"open": {"part_ready", "part_leased"},
						"over": {"part_over"}},
					State: func(j *job.Job) string {
						if j.State == "part_over" {
							return "over"
						}
						return "open"
					},
					Actions: []contract.Action{cancel,
						{Name: contract.ActionRelease, States: []job.State{"part_ready"},
							Do: overtaken(cancel.Do)},
						{Name: contract.ActionDelete, States: []job.State{"part_ready"},
							Do: overtaken(func(ctx context.Context, j *job.Job) (*job.Job, error) {
								return c.Engine.Change(ctx, j.ID, job.Removed, nil)
							})}}}}}}
		})
		test(t, w)
	})
}

// submitPart submits a job and returns its number.
func (w *jobsWorld) submitPart(t *testing.T, key string) int64 {
	t.Helper()
	r, err := w.engine.Submit(t.Context(), engine.Unique, []engine.Submission{{Job: job.Job{
		ID: job.ID{JobType: parts, Key: key}, Queue: "q", Lease: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Jobs[0].Seq
}

// AD-006, AD-016, G-AD-05: the audit and what is refused have the words that clients know of
// contracts and states. A job that moves on while somebody acts on it is answered like one that had
// moved on before.
func TestWordsOfClients(t *testing.T) {
	withParts(t, func(t *testing.T, w *jobsWorld) {
		w.acted(t, w.submitPart(t, "a"), contract.ActionCancel)
		for key, action := range map[string]string{"b": contract.ActionRelease,
			"c": contract.ActionDelete} {
			refused := w.act(t, w.submitPart(t, key), action)
			refused.WantError(t, 409, "NOT_ALLOWED", "the job is over, which does not allow "+action,
				"no action")
			if strings.Contains(refused.Body, "part_") {
				t.Errorf("AD-016 %s answers %s", action, refused.Body)
			}
		}
		w.submitPart(t, "d")
		id := w.startBulk(t, "/admin/v1/bulk",
			`{"action":"cancel","filter":{"contract":"whole","state":["open"]}}`)
		all := w.audit(t, "").Items
		actions := []string{}
		for _, e := range all {
			actions = append(actions, e.Action)
			if text := string(e.Before) + string(e.After); strings.Contains(text, "part") ||
				!strings.Contains(text, `"whole"`) {
				t.Errorf("AD-006 the entry of %s has %s", e.Action, text)
			}
		}
		if want := []string{"bulk.start", "job.cancel"}; !slices.Equal(actions, want) {
			t.Errorf("AD-006 the audit has %q, want %q", actions, want)
		}
		if got := get[bulkView](t, w.world, "/admin/v1/bulk/"+id); got.Action != "cancel" {
			t.Errorf("AD-021 the operation is %+v", got)
		}
	})
}

// AD-010: ages are those by the clock of the store, whatever that of the node says.
func TestAgesAreThoseOfTheStore(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &jobsWorld{}
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
			c.Shared = p.Reopen != nil
			c.Now = func() time.Time { return p.Clock.Now().Add(time.Hour) }
			w.addContracts(t, c)
		})
		w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, "")
		w.clock.Advance(time.Minute)
		for age, want := range map[string]int{"min_age=30m": 0, "max_age=30m": 1, "min_age=1m": 1,
			"max_age=1m": 0} {
			list := get[struct{ Items []struct{ Number int64 } }](t, w.world,
				"/admin/v1/jobs?"+age).Items
			if len(list) != want {
				t.Errorf("AD-010 %s finds %d jobs, want %d", age, len(list), want)
			}
		}
		for age, want := range map[string]int{"min_age": 0, "max_age": 1} {
			seen := testkit.DecodeReply[struct{ Matching int }](t, w.post(t, "/admin/v1/bulk",
				fmt.Sprintf(`{"action":"delete","filter":{%q:"30m"},"dry_run":true}`, age)).
				WantStatus(t, 200))
			if seen.Matching != want {
				t.Errorf("AD-020 %s matches %d jobs, want %d", age, seen.Matching, want)
			}
		}
	})
}
