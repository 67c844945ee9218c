package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

func mustTask(tb testing.TB, tf *client.TaskFlow, spec client.TaskFlowSpec) client.TaskFlowJob {
	tb.Helper()
	job, err := tf.Submit(tb.Context(), spec)
	if err != nil {
		tb.Fatalf("Create: %v", err)
	}
	return job
}

func taskSpec(name string, on ...string) client.TaskFlowSpec {
	return client.TaskFlowSpec{Name: name, Queue: "q", Dependencies: on}
}

func TestTaskFlow_jobs(t *testing.T) {
	t.Parallel()
	tf := flowServer(t).TaskFlow()
	first := mustTask(t, tf, taskSpec("first"))
	t.Run("TF-069 TF-005 a job comes back as it was sent", func(t *testing.T) {
		spec := client.TaskFlowSpec{Name: "näme \"1\"", Queue: "etl_1",
			Payload:  json.RawMessage(`{"big": 12345678901234567890, "a":[1.50]}`),
			Priority: 7, Dependencies: []string{first.ID},
			Retry: client.TaskFlowRetryPolicy{MaxAttempts: 5,
				Strategy:  client.TaskFlowBackoffLinear,
				BaseDelay: 1500 * time.Millisecond, MaxDelay: time.Minute}}
		made := mustTask(t, tf, spec)
		got, err := tf.Get(t.Context(), made.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range []client.TaskFlowJob{made, got} {
			if job.Name != spec.Name || job.Queue != spec.Queue ||
				string(job.Payload) != string(spec.Payload) || job.Priority != 7 ||
				!slices.Equal(job.Dependencies, spec.Dependencies) ||
				job.Status != client.TaskFlowStatusPending || job.FailedAttempts != 0 ||
				job.CreatedAt.IsZero() || job.CreatedAt.Location() != time.UTC ||
				!job.NextRunAt.IsZero() {
				t.Errorf("got %+v", job)
			}
			want := spec.Retry
			want.BaseDelay = 2 * time.Second // rounded up
			if job.Retry != want {
				t.Errorf("retry %+v, want %+v", job.Retry, want)
			}
		}
	})
	t.Run("TF-013 defaults", func(t *testing.T) {
		want := client.TaskFlowRetryPolicy{MaxAttempts: 3,
			Strategy:  client.TaskFlowBackoffExponential,
			BaseDelay: 10 * time.Second, MaxDelay: 300 * time.Second}
		if first.Priority != 5 || string(first.Payload) != "{}" || first.Retry != want ||
			first.Status != client.TaskFlowStatusReady {
			t.Errorf("got %+v", first)
		}
	})
	t.Run("TF-073 TF-078 an update changes what it names", func(t *testing.T) {
		made := mustTask(t, tf, taskSpec("before", first.ID))
		name, priority, none := "after", 9, []string{}
		got, err := tf.Update(t.Context(), made.ID,
			client.TaskFlowPatch{Name: &name, Priority: &priority,
				Payload: json.RawMessage("null")})
		if err != nil || got.Name != name || got.Priority != 9 || string(got.Payload) != "null" ||
			got.Queue != "q" || len(got.Dependencies) != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
		got, err = tf.Update(t.Context(), made.ID,
			client.TaskFlowPatch{Dependencies: &none,
				Retry: &client.TaskFlowRetryPolicy{MaxAttempts: 1}})
		if err != nil || len(got.Dependencies) != 0 || got.Status != client.TaskFlowStatusReady ||
			got.Retry.MaxAttempts != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("TF-081 a deleted job is gone", func(t *testing.T) {
		made := mustTask(t, tf, taskSpec("gone"))
		if err := tf.Delete(t.Context(), made.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := tf.Get(t.Context(), made.ID); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("Get = %v", err)
		}
	})
}

func TestTaskFlow_errors(t *testing.T) {
	t.Parallel()
	tf := flowServer(t).TaskFlow()
	a := mustTask(t, tf, taskSpec("a"))
	b := mustTask(t, tf, taskSpec("b", a.ID))
	unknown := "00000000-0000-4000-8000-000000000000"
	for name, tc := range map[string]struct {
		call func(ctx context.Context) error
		kind error
		code string
	}{
		"TF-070 validation": {func(ctx context.Context) error {
			_, err := tf.Submit(ctx, client.TaskFlowSpec{Name: "x", Queue: "a-b"})
			return err
		}, client.ErrInvalid, client.TaskFlowCodeValidationError},
		"TF-008 unknown dependency": {func(ctx context.Context) error {
			_, err := tf.Submit(ctx, taskSpec("x", unknown))
			return err
		}, client.ErrInvalid, client.TaskFlowCodeValidationError},
		"TF-072 unknown": {func(ctx context.Context) error {
			_, err := tf.Get(ctx, unknown)
			return err
		},
			client.ErrNotFound, client.TaskFlowCodeNotFound},
		"TF-072 graph of an unknown": {func(ctx context.Context) error {
			_, err := tf.Graph(ctx, unknown)
			return err
		},
			client.ErrNotFound, client.TaskFlowCodeNotFound},
		"TF-082 delete of an unknown": {func(ctx context.Context) error {
			return tf.Delete(ctx, unknown)
		},
			client.ErrNotFound, client.TaskFlowCodeNotFound},
		"TF-083 delete of a dependency": {func(ctx context.Context) error {
			return tf.Delete(ctx, a.ID)
		},
			client.ErrConflict, client.TaskFlowCodeConflict},
		"TF-034 cycle": {func(ctx context.Context) error {
			_, err := tf.Update(ctx, a.ID, client.TaskFlowPatch{Dependencies: &[]string{b.ID}})
			return err
		}, client.ErrCycle, client.TaskFlowCodeConflict},
		"TF-102 bad cursor": {func(ctx context.Context) error {
			_, err := tf.Page(ctx, client.TaskFlowFilter{}, "!")
			return err
		},
			client.ErrInvalid, client.TaskFlowCodeValidationError},
		"TF-004 payload that is not JSON": {func(ctx context.Context) error {
			_, err := tf.Submit(ctx, client.TaskFlowSpec{Name: "x", Queue: "q",
				Payload: json.RawMessage("{")})
			return err
		}, client.ErrInvalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.call(t.Context())
			var fail *client.Error
			if !errors.As(err, &fail) || !errors.Is(err, tc.kind) || fail.Code != tc.code ||
				(fail.Code != "" && fail.Message == "") {
				t.Fatalf("got %#v", err)
			}
			if errors.Is(err, client.ErrCycle) && !slices.Equal(fail.Cycle, []string{a.ID, b.ID}) {
				t.Errorf("G-TF-33 cycle %v", fail.Cycle)
			}
		})
	}
}

func TestTaskFlow_search(t *testing.T) {
	t.Parallel()
	tf := flowServer(t).TaskFlow()
	var want []string
	for i := range 7 {
		spec := taskSpec(fmt.Sprint(i))
		spec.Priority = i + 1
		want = append(want, mustTask(t, tf, spec).ID)
	}
	slices.Reverse(want)
	ids := func(f client.TaskFlowFilter) (ids []string) {
		for job, err := range tf.Search(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, job.ID)
		}
		return ids
	}
	t.Run("TF-101 all pages, each job once", func(t *testing.T) {
		for _, size := range []int{0, 1, 2, 7, 100} {
			if got := ids(client.TaskFlowFilter{PageSize: size}); !slices.Equal(got, want) {
				t.Errorf("size %d: %v, want %v", size, got, want)
			}
		}
	})
	t.Run("TF-094 filters", func(t *testing.T) {
		third, err := tf.Get(t.Context(), want[4])
		if err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			filter client.TaskFlowFilter
			want   []string
		}{
			"queue": {client.TaskFlowFilter{Queue: "other"}, nil},
			"status": {client.TaskFlowFilter{Status: client.TaskFlowStatusReady, Queue: "q"},
				want},
			"priority": {client.TaskFlowFilter{PriorityMin: 2, PriorityMax: 3}, want[4:6]},
			"after":    {client.TaskFlowFilter{CreatedAfter: third.CreatedAt}, want[:5]},
			"before":   {client.TaskFlowFilter{CreatedBefore: third.CreatedAt}, want[5:]},
		} {
			if got := ids(tc.filter); !slices.Equal(got, tc.want) {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		}
	})
}

func TestTaskFlow_graph(t *testing.T) {
	t.Parallel()
	tf := flowServer(t).TaskFlow()
	before := mustTask(t, tf, taskSpec("before"))
	var g client.TaskFlowGraphBuilder
	g.Add("load", taskSpec("load"), "extract", "clean") // before what it comes after
	extract := g.Add("extract", taskSpec("extract", before.ID))
	g.Add("clean", taskSpec("clean"), extract)
	ids, err := tf.SubmitGraph(t.Context(), &g)
	if err != nil || len(ids) != 3 {
		t.Fatalf("Submit = %v, %v", ids, err)
	}
	graph, err := tf.Graph(t.Context(), ids["clean"])
	if err != nil || len(graph.Jobs) != 4 || graph.Truncated || graph.Final() {
		t.Fatalf("Graph = %+v, %v", graph, err)
	}
	for _, edge := range []client.TaskFlowEdge{{From: before.ID, To: ids["extract"]},
		{From: ids["extract"], To: ids["clean"]},
		{From: ids["extract"], To: ids["load"]}, {From: ids["clean"], To: ids["load"]}} {
		if !slices.Contains(graph.Edges, edge) {
			t.Errorf("G-TF-36 no edge %+v in %+v", edge, graph.Edges)
		}
	}
}

func TestTaskFlow_graphMistakes(t *testing.T) {
	t.Parallel()
	tf := mustClient(t, client.Config{BaseURL: "http://taskflow.test",
		HTTPClient: &http.Client{Transport: direct{
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("something was sent")
			})}}}).TaskFlow()
	add := func(build func(*client.TaskFlowGraphBuilder)) error {
		var g client.TaskFlowGraphBuilder
		build(&g)
		_, err := tf.SubmitGraph(t.Context(), &g)
		return err
	}
	for name, err := range map[string]error{
		"empty": add(func(*client.TaskFlowGraphBuilder) {}),
		"twice": add(func(g *client.TaskFlowGraphBuilder) {
			g.Add("a", taskSpec("a"))
			g.Add("a", taskSpec("a"))
		}),
		"unknown": add(func(g *client.TaskFlowGraphBuilder) { g.Add("a", taskSpec("a"), "b") }),
		"nameless": add(func(g *client.TaskFlowGraphBuilder) {
			g.Add("a", client.TaskFlowSpec{Queue: "q"})
		}),
	} {
		if !errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrCycle) {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := add(func(g *client.TaskFlowGraphBuilder) {
		g.Add("x", taskSpec("x"), "a")
		g.Add("a", taskSpec("a"), "b")
		g.Add("b", taskSpec("b"), "c")
		g.Add("c", taskSpec("c"), "a")
	})
	var fail *client.Error
	if !errors.As(err, &fail) || !errors.Is(err, client.ErrCycle) ||
		!slices.Equal(fail.Cycle, []string{"a", "b", "c"}) {
		t.Errorf("TF-037 cycle: %v", err)
	}
	err = add(func(g *client.TaskFlowGraphBuilder) { // TF-038: no cycle; TF-041: deep
		for i := range 100_000 {
			g.Add(fmt.Sprint(i), taskSpec("n"), fmt.Sprint(min(i+1, 99_999)))
		}
	})
	if !errors.As(err, &fail) || !slices.Equal(fail.Cycle, []string{"99999"}) {
		t.Errorf("TF-035 self: %.200v", err)
	}
}

// What must not be done twice is not repeated after a lost answer, but is when nothing can have
// happened.
func TestTaskFlow_uncertain(t *testing.T) {
	t.Parallel()
	lost := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	busy := func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }
	gone := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"NOT_FOUND","message":"gone"}`)
	}
	create := func(tf *client.TaskFlow) error {
		_, err := tf.Submit(t.Context(), taskSpec("a"))
		return err
	}
	remove := func(tf *client.TaskFlow) error { return tf.Delete(t.Context(), "x") }
	for name, tc := range map[string]struct {
		call      func(*client.TaskFlow) error
		answers   []func(http.ResponseWriter)
		tries     int
		uncertain bool
		kind      error
	}{
		"TF-069 a create whose answer was lost": {create,
			[]func(http.ResponseWriter){busy, lost, gone}, 2, true, client.ErrRetryable},
		"TF-081 a delete whose answer was lost": {remove, []func(http.ResponseWriter){lost, gone},
			2, false, nil},
		"TF-082 a delete that found nothing": {remove, []func(http.ResponseWriter){busy, gone},
			2, false, client.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			tf := mustClient(t, client.Config{BaseURL: "http://taskflow.test",
				Retry: client.Retry{BaseDelay: 1},
				HTTPClient: &http.Client{Transport: direct{http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) {
						tries++
						tc.answers[tries-1](w)
					})}}}).TaskFlow()
			err := tc.call(tf)
			var fail *client.Error
			if !errors.Is(err, tc.kind) || tries != tc.tries ||
				(errors.As(err, &fail) && fail.Uncertain != tc.uncertain) {
				t.Errorf("got %v after %d tries", err, tries)
			}
		})
	}
}
