package client_test

import (
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"

	"github.com/millrace/millrace/client"
)

// serveFlow starts a real server of TaskFlow and the worker API, in memory.
func serveFlow() (baseURL string, stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	return testkit.Serve(func(e *engine.Engine) ([]httpapi.PrefixHandler, error) {
		contract, err := taskflow.New(taskflow.Config{Engine: e, Log: log,
			Registry: prometheus.NewRegistry(), Now: time.Now, Random: testkit.RandomBytes,
			Settings: taskflow.Settings{Lease: time.Minute, MaxConcurrent: 1000,
				IdempotencyWindow: time.Hour},
			BodyLimit: 1 << 20, GraphBodyLimit: 16 << 20,
			NoLocalWorkers: true})
		if err != nil {
			return nil, err
		}
		workers, err := workerapi.New(workerapi.Config{Engine: e, Log: log,
			Contracts: []workerapi.Adapter{contract.RemoteWorkers()}})
		if err != nil {
			return nil, err
		}
		return []httpapi.PrefixHandler{contract.Mount(), workers.Mount()},
			e.Register(contract.JobType())
	})
}

// flowServer is a server that ends with the test.
func flowServer(tb testing.TB) *client.Client {
	tb.Helper()
	url, stop, err := serveFlow()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(stop)
	return mustClient(tb, client.Config{BaseURL: url})
}

// TestTaskFlowReruns: RT-001 RT-002: what failed is rerun as new jobs, running attempts are ended,
// and requests with a key may be repeated, against a real server.
func TestTaskFlowReruns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := flowServer(t)
	tf := c.TaskFlow()
	spec := client.TaskFlowSpec{Name: "n", Queue: "q"}
	graph := func() *client.TaskFlowGraphBuilder {
		var g client.TaskFlowGraphBuilder
		g.Add("b", spec, g.Add("a", spec))
		return &g
	}
	ids, err := tf.SubmitGraphOnce(ctx, "a graph", graph())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tf.SubmitGraphOnce(ctx, "a graph", graph()); err != nil ||
		!maps.Equal(again, ids) {
		t.Errorf("RT-002 again %v of %v: %v", again, ids, err)
	}
	if _, err := tf.Cancel(ctx, ids["a"]); !errors.Is(err, client.ErrConflict) {
		t.Errorf("RT-001 a cancel of a READY job: %v", err)
	}
	claimed, err := c.WorkerAPI().ClaimJob(ctx, client.ContractTaskFlow, ids["a"], "w")
	if err != nil {
		t.Fatal(err)
	}
	canceled, err := tf.Cancel(ctx, claimed.ID)
	if err != nil || canceled.Status != client.TaskFlowStatusFailed ||
		canceled.LastError.Type != "canceled" {
		t.Errorf("RT-001 canceled is %+v: %v", canceled, err)
	}
	copies, err := tf.RerunGraph(ctx, ids["b"], false)
	if err != nil || len(copies) != 2 {
		t.Fatalf("RT-001 copies %v: %v", copies, err)
	}
	var fail *client.Error
	_, err = tf.Rerun(ctx, ids["a"], false)
	if !errors.Is(err, client.ErrConflict) || !errors.As(err, &fail) ||
		!maps.Equal(fail.Copies, copies) {
		t.Errorf("RT-001 a second rerun: %v, with %v", err, fail.Copies)
	}
	if more, err := tf.Rerun(ctx, ids["a"], true); err != nil || len(more) != 2 {
		t.Errorf("RT-001 again %v: %v", more, err)
	}
	made, err := tf.Get(ctx, copies[ids["b"]])
	if err != nil || made.RerunOf != ids["b"] || made.Dependencies[0] != copies[ids["a"]] {
		t.Errorf("RT-001 the copy is %+v: %v", made, err)
	}
	if err := tf.DeleteWithDependents(ctx, copies[ids["a"]]); err != nil {
		t.Error(err)
	}
	if _, err := tf.Get(ctx, copies[ids["b"]]); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("RT-001 a dependent that was deleted: %v", err)
	}
	first, err := tf.SubmitOnce(ctx, "a job", spec)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := tf.SubmitOnce(ctx, "a job", spec); err != nil || second.ID != first.ID {
		t.Errorf("RT-002 the second is %s, the first %s: %v", second.ID, first.ID, err)
	}
	other := spec
	other.Priority = 9
	_, err = tf.SubmitOnce(ctx, "a job", other)
	if !errors.As(err, &fail) || fail.Code != client.TaskFlowCodeIdempotencyConflict {
		t.Errorf("RT-002 another job with the key: %v", err)
	}
}
