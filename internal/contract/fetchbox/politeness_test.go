package fetchbox_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// After a Retry-After of a host all its downloads wait; only the one that got the answer has used
// an attempt.
func TestHostsAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for form, value := range map[string]string{"seconds": "90",
			"a date": testkit.StartTime.Add(90 * time.Second).Format(http.TimeFormat)} {
			t.Run("FB-083 Retry-After as "+form, func(t *testing.T) {
				t.Parallel()
				w := newFetchWorld(t, assertNear())
				busy := true
				asked := 0
				s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
					asked++
					if busy {
						rw.Header().Set("Retry-After", value)
						rw.WriteHeader(status)
					}
				})
				ctx := context.Background()
				o := w.fetch(ctx, taskOf(s.URL, nil), 0)
				wantFailure(t, o, "HTTP_"+map[int]string{429: "429", 503: "503"}[status], true)
				assertEqual(t, "the delay of the download that was refused", o.Delay, 90*time.Second)
				w.clock.Advance(30 * time.Second)
				other := taskOf(s.URL+"/other", func(task *handler.Task) {
					task.ResourceID = "other"
				})
				o = w.fetch(ctx, other, 0)
				if o.On != job.Released || o.Delay != time.Minute || asked != 1 {
					t.Errorf("another ended as %+v after %d requests", o, asked)
				}
				elsewhere := origin(t, func(http.ResponseWriter, *http.Request) {})
				wantSuccess(t, w.fetch(ctx, taskOf(elsewhere.URL, nil), 0))
				busy = false
				w.clock.Advance(time.Minute)
				wantSuccess(t, w.fetch(ctx, other, 0))
			})
		}
	}
}

func TestHostLimit(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	h := fetchbox.NewHosts(3, clock.Monotonic)
	ctx := context.Background()
	var leaves []func()
	for range 3 {
		leave, later := h.Acquire(ctx, "a")
		if later != 0 {
			t.Fatalf("a place is free, and it is to come in %s", later)
		}
		leaves = append(leaves, leave)
	}
	other, later := h.Acquire(ctx, "b")
	if later != 0 {
		t.Fatalf("another host has free places, and it is to come in %s", later)
	}
	other()
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, later := h.Acquire(canceled, "a"); later <= 0 {
		t.Error("there are four at a host of three")
	}
	waiting := make(chan time.Duration)
	go func() {
		leave, later := h.Acquire(ctx, "a")
		if leave != nil {
			leave()
		}
		waiting <- later
	}()
	leaves[0]()
	if later := <-waiting; later != 0 {
		t.Errorf("a place came free, and it is to come in %s", later)
	}
	leaves[1]()
	leaves[2]()
	if n := h.Len(); n != 0 {
		t.Errorf("%d hosts are remembered for nothing", n)
	}
	h.Pause("a", time.Minute)
	h.Pause("a", time.Second) // the longer one holds
	if _, later := h.Acquire(ctx, "a"); later != time.Minute || h.Len() != 1 {
		t.Errorf("it is to come in %s; %d are remembered", later, h.Len())
	}
	clock.Advance(time.Minute)
	h.Pause("b", time.Second)
	if n := h.Len(); n != 1 {
		t.Errorf("%d hosts are remembered, want b", n)
	}
}

// Many come and go; never are there more than may be, and nothing stays.
func TestHostLimitInACrowd(t *testing.T) {
	t.Parallel()
	h := fetchbox.NewHosts(4, testkit.NewClock().Monotonic)
	var mu sync.Mutex
	now, peak := 0, 0
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 200 {
				leave, later := h.Acquire(context.Background(), "a")
				if later != 0 {
					continue
				}
				mu.Lock()
				now++
				peak = max(peak, now)
				mu.Unlock()
				mu.Lock()
				now--
				mu.Unlock()
				leave()
			}
		})
	}
	all.Wait()
	if peak > 4 || h.Len() != 0 {
		t.Errorf("there were %d at a time; %d are remembered", peak, h.Len())
	}
}
