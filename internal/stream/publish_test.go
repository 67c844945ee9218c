package stream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

func TestPublish(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		var mixed []stream.Message
		for i := range 2500 { // several batches, and a few messages of another stream between them
			mixed = append(mixed, stream.Message{Subject: fmt.Sprint("logs.j", i%5),
				ID: fmt.Sprint("m", i), Data: fmt.Appendf(nil, "%d", i)})
			if i%500 == 0 {
				mixed = append(mixed, stream.Message{Subject: "dead", Data: []byte("d"),
					Header: map[string]string{"Some": "thing"}})
			}
		}
		offsets := w.mustPublish(t, mixed...)
		next := map[string]uint64{}
		for i, m := range mixed {
			name, _, _ := strings.Cut(m.Subject, ".")
			if next[name]++; offsets[i] != next[name] {
				t.Fatalf("message %d of %s has offset %d, want %d", i, m.Subject, offsets[i],
					next[name])
			}
		}
		found := w.mustRead(t, "LOGS", "logs.j3", 0, 1000)
		if len(found) != 500 || string(found[0].Data) != "3" || string(found[499].Data) != "2498" ||
			found[0].Offset != 4 || found[0].Time.IsZero() {
			t.Errorf("got %d entries, the first %+v", len(found), found[0])
		}
		if !slices.IsSortedFunc(found, func(a, b stream.Entry) int {
			return int(a.Offset) - int(b.Offset)
		}) {
			t.Error("entries are out of order")
		}
	})
}

func TestPublishAtTheSameTime(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		const callers, each = 20, 60
		taken := make([][]uint64, callers)
		var wait sync.WaitGroup
		for c := range callers {
			wait.Go(func() {
				for i := 0; i < each; i += 20 {
					offsets, err := w.Publish(t.Context(),
						newMessages("logs.x", fmt.Sprint("c", c, "-", i, "-"), 20))
					if err != nil {
						t.Error(err)
					}
					taken[c] = append(taken[c], offsets...)
				}
			})
		}
		wait.Wait()
		all := slices.Sorted(slices.Values(slices.Concat(taken...)))
		if len(slices.Compact(all)) != callers*each ||
			len(w.mustRead(t, "LOGS", "logs.x", 0, 5000)) != callers*each {
			t.Errorf("offsets: %d, stored: %d", len(all),
				len(w.mustRead(t, "LOGS", "logs.x", 0, 5000)))
		}
	})
}

func TestPublishAgain(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		one := stream.Message{Subject: "logs.a", ID: "one", Data: []byte("first")}
		other := stream.Message{Subject: "logs.a", ID: "one",
			Data: []byte("another under the same id")}
		for i, tt := range []struct {
			m    stream.Message
			want uint64
		}{{one, 1}, {one, 1}, {other, 2}, {other, 2}, {one, 1},
			{stream.Message{Subject: "logs.b", ID: "one", Data: one.Data}, 3},
			{stream.Message{Subject: "logs.a", Data: one.Data}, 4},
			{stream.Message{Subject: "logs.a", Data: one.Data}, 5}} {
			if got := w.mustPublish(t, tt.m); got[0] != tt.want {
				t.Errorf("%d: got offset %d, want %d", i, got[0], tt.want)
			}
		}
		// Of those that say they are the first one is, also in a batch.
		first := stream.Message{Subject: "dead", ID: "first", Data: []byte("this"), FirstOnly: true}
		late := first
		late.Data = []byte("that")
		for _, batch := range [][]stream.Message{{first}, {late},
			append([]stream.Message{late}, newMessages("dead", "d", 20)...)} {
			if got := w.mustPublish(t, batch...); got[0] != 1 {
				t.Errorf("got offset %d", got[0])
			}
		}
		if got := w.mustRead(t, "DEAD", "dead", 0, 100); len(got) != 21 ||
			string(got[0].Data) != "this" {
			t.Errorf("got %v", dataOf(got))
		}
		// A batch that holds a known id is stored but for that one.
		batch := append([]stream.Message{one}, newMessages("logs.c", "c", 40)...)
		for range 2 {
			offsets := w.mustPublish(t, batch...)
			if offsets[0] != 1 || offsets[1] != 6 || offsets[40] != 45 {
				t.Errorf("got offsets %v", offsets)
			}
		}
		// After a purge the ids that the server remembers stand for nothing.
		logs, err := w.js.Stream(t.Context(), "LOGS")
		if err != nil {
			t.Fatal(err)
		}
		if err := logs.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w.mustPublish(t, batch...)
			if got := w.mustRead(t, "LOGS", "logs.*", 0, 100); len(got) != 41 ||
				got[0].Offset != 46 {
				t.Errorf("got %d entries", len(got))
			}
		}
	})
}

func TestPublishErrors(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			name string
			ctx  context.Context
			m    []stream.Message
			want job.Kind
		}{
			{"no stream accepts the subject", t.Context(), newMessages("elsewhere", "x", 1),
				job.Invalid},
			{"nor one level deeper", t.Context(), newMessages("logs.a.b", "x", 1), job.Invalid},
			{"larger than the server takes", t.Context(),
				[]stream.Message{{Subject: "dead", Data: make([]byte, 2<<20)}}, job.TooLarge},
			{"the request was canceled", canceled, newMessages("dead", "x", 1), job.Aborted},
			{"the request of a batch was canceled", canceled, newMessages("dead", "x", 40),
				job.Aborted},
		} {
			if _, err := w.Publish(tt.ctx, tt.m); !job.IsKind(err, tt.want) {
				t.Errorf("%s: got %v", tt.name, err)
			}
		}
		// None of these got in the way of the next.
		w.mustPublish(t, newMessages("dead", "y", 40)...)
		if got := w.mustRead(t, "LOGS", "logs.*", 0, 10); len(got) != 0 {
			t.Errorf("got %v", dataOf(got))
		}
		if none, err := w.Publish(t.Context(), nil); err != nil || len(none) != 0 {
			t.Errorf("got %v, %v", none, err)
		}
	})
}

// TestStreamRemoved removes a stream behind our back: every verb makes it again, and offsets begin
// anew. Each has a server of its own: one that is still clearing a stream's directory away cannot
// remove the stream of that name again, and would bring its messages back.
func TestStreamRemoved(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]func(*testing.T, *fixture){
		"one message": func(t *testing.T, w *fixture) {
			if got := w.mustPublish(t, newMessages("logs.a", "before", 1)...); got[0] != 1 {
				t.Errorf("got offset %d", got[0])
			}
		},
		"a batch": func(t *testing.T, w *fixture) {
			if got := w.mustPublish(t, newMessages("logs.a", "before", 30)...); got[29] != 30 {
				t.Errorf("got offset %d", got[29])
			}
		},
		"read": func(t *testing.T, w *fixture) {
			if got := w.mustRead(t, "LOGS", "logs.a", 5, 10); len(got) != 0 {
				t.Errorf("got %v", dataOf(got))
			}
		},
		"newest": func(t *testing.T, w *fixture) {
			if got, err := w.Newest(t.Context(), "LOGS", "logs.a", 0, 10); err != nil ||
				len(got) != 0 {
				t.Errorf("got %v, %v", dataOf(got), err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEachServer(t, func(t *testing.T, w *fixture) {
				w.mustPublish(t, newMessages("logs.a", "before", 20)...)
				if err := w.js.DeleteStream(t.Context(), "LOGS"); err != nil {
					t.Fatal(err)
				}
				verb(t, w)
			})
		})
	}
}
