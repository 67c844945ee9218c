package account_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/account"
)

func limits(perMinute, perDay, anonymous int) func(*account.Config) {
	return func(c *account.Config) {
		c.RatePerMinute, c.QuotaPerDay, c.AnonymousPerMinute = perMinute, perDay, anonymous
	}
}

// countGranted asks for n requests of a client and returns how many were granted and the last
// refusal.
func (w *world) countGranted(a *account.Accounts, client string, n int) (granted int,
	refusal account.Decision) {
	w.Helper()
	for range n {
		v, err := a.Allow(w.Context(), account.Identity{ClientID: client})
		if w.noError(err); v.Allowed {
			granted++
		} else {
			refusal = v
		}
	}
	return granted, refusal
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("FR-205 one node grants the limit to the last request", func(t *testing.T) {
		for _, limit := range []int{1, 7, 20, 160, 601} {
			t.Run(fmt.Sprint(limit), func(t *testing.T) {
				onEveryDatabase(t, func(w *world) {
					// the windows are the clock's, not the caller's
					w.clock.Advance(20 * time.Second)
					got, refusal := w.countGranted(w.accounts, "c", limit+5)
					if got != limit || refusal != (account.Decision{Limit: "per minute",
						RetryAfter: 40 * time.Second}) {
						w.Errorf("granted %d, then %+v", got, refusal)
					}
					if got, _ := w.countGranted(w.accounts, "other", 1); got != 1 {
						w.Error("another client is affected")
					}
					w.clock.Advance(40*time.Second - time.Millisecond)
					if got, _ := w.countGranted(w.accounts, "c", 3); got != 0 {
						w.Errorf("granted %d more", got)
					}
					w.clock.Advance(time.Millisecond)
					if got, _ := w.countGranted(w.accounts, "c", limit+1); got != limit {
						w.Errorf("granted %d in the next minute", got)
					}
				}, limits(limit, 0, 1))
			})
		}
	})
	t.Run("FR-206 G-FR-14 a quota per day", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			for minute, want := range []int{10, 10, 5, 0} {
				got, refusal := w.countGranted(w.accounts, "c", 12)
				wantLimit := "per minute"
				if minute >= 2 {
					wantLimit = "per day"
				}
				if got != want || refusal.Limit != wantLimit {
					w.Errorf("minute %d: granted %d, then %+v; want %d, then %s", minute, got,
						refusal, want, wantLimit)
				}
				if until := w.clock.Now().Add(refusal.RetryAfter); wantLimit == "per day" &&
					!until.Equal(testDay.Add(day)) {
					w.Errorf("the day ends at %v", until)
				}
				w.clock.Advance(time.Minute)
			}
			w.clock.Advance(testDay.Add(day).Sub(w.clock.Now()))
			if got, _ := w.countGranted(w.accounts, "c", 12); got != 10 {
				w.Errorf("granted %d in the first minute of the next day", got)
			}
		}, limits(10, 25, 1))
	})
	t.Run("FR-205 a rejected client costs no look into the store", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			w.countGranted(w.accounts, "c", 201)
			before := w.store.updates.Load() + w.store.views.Load()
			w.countGranted(w.accounts, "c", 1000)
			if n := w.store.updates.Load() + w.store.views.Load() - before; n != 0 {
				w.Errorf("%d looks", n)
			}
			w.clock.Advance(time.Minute)
			before = w.store.puts.Load()
			w.countGranted(w.accounts, "c", 200)
			if n := w.store.puts.Load() - before; n > 50 {
				w.Errorf("%d writes for 200 requests", n)
			}
		}, limits(200, 0, 1))
	})
	t.Run("G-FR-16 addresses have a limit of their own", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			ask := func(address string) bool {
				v, err := w.accounts.AllowAddress(w.Context(), address)
				w.noError(err)
				return v.Allowed
			}
			for n := range 3 {
				if got := ask(fmt.Sprintf("[2001:db8::%d]:%d", n+1, 1000+n)); got != (n < 2) {
					w.Errorf("request %d from one /64: %v", n, got)
				}
			}
			if !ask("[2001:db8:0:1::1]:80") || !ask("192.0.2.1") || !ask("192.0.2.2:1") {
				w.Error("other addresses are affected")
			}
			if got, _ := w.countGranted(w.accounts, "192.0.2.1", 3); got != 3 {
				w.Error("clients are affected")
			}
		}, limits(600, 0, 2))
	})
	t.Run("FR-205 a store that is unavailable grants nothing", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			w.store.unavailable.Store(true)
			if v, err := w.accounts.Allow(w.Context(),
				account.Identity{ClientID: "c"}); err == nil || v.Allowed {
				w.Errorf("got %+v", v)
			}
			w.store.unavailable.Store(false)
			if got, _ := w.countGranted(w.accounts, "c", 6); got != 5 {
				w.Errorf("granted %d", got)
			}
		}, limits(5, 0, 1))
	})
	t.Run("FR-205 a clock that is set back refuses no requests", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			w.countGranted(w.accounts, "c", 6)
			w.clock.Jump(-time.Hour)
			w.clock.Advance(time.Minute) // the node believes its own clock until the window is over
			if got, refusal := w.countGranted(w.accounts, "c", 6); got != 5 ||
				refusal.RetryAfter > time.Minute {
				w.Errorf("granted %d, then %+v", got, refusal)
			}
		}, limits(5, 0, 1))
	})
}

var testDay = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC) // that of testkit.StartTime

// TestLimitsOfManyNodes lets crowds on two nodes ask for more than the limit.
func TestLimitsOfManyNodes(t *testing.T) {
	t.Parallel()
	t.Run("FR-205 all nodes together never grant more", func(t *testing.T) {
		const limit, day = 240, 2*240 + 10
		// In the second minute a node may hold the rest of the day's requests while the other holds
		// that of the minute's, which then is granted a minute later.
		onEveryDatabase(t, func(w *world) {
			other, _ := w.node(limits(limit, day, 1))
			w.store.rerun.Store(true)
			total := int64(0)
			for minute := range 3 {
				var granted, refused atomic.Int64
				runConcurrently(16, func(n int) {
					node := w.accounts
					if n%2 == 0 {
						node = other
					}
					for range 40 {
						v, err := node.Allow(w.Context(), account.Identity{ClientID: "c"})
						switch {
						case err != nil:
							w.Error(err)
						case v.Allowed:
							granted.Add(1)
						default:
							refused.Add(1)
						}
					}
				})
				got := granted.Load()
				if total += got; got > limit || (minute == 0 && got < limit) {
					w.Errorf("minute %d: granted %d of %d", minute, got, limit)
				}
				w.clock.Advance(time.Minute)
			}
			if total != day {
				w.Errorf("granted %d of the day's %d", total, day)
			}
		}, limits(limit, day, 1))
	})
	t.Run("FR-205 what a node does not use is what others miss", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			other, _ := w.node(limits(600, 0, 1))
			used, _ := w.countGranted(other, "c", 1)
			got, _ := w.countGranted(w.accounts, "c", 700)
			if total := used + got; total > 600 || total < 600-7 {
				w.Errorf("granted %d: more than the limit, or less than 8 at a time can explain",
					total)
			}
		}, limits(600, 0, 1))
	})
}

func TestLimitsForgetful(t *testing.T) {
	t.Parallel()
	t.Run("callers that are gone are forgotten", func(t *testing.T) {
		w := newWorld(t, "memory", limits(600, 0, 60))
		for n := range 5000 {
			if n%500 == 0 {
				w.clock.Advance(time.Minute)
			}
			if v, err := w.accounts.AllowAddress(t.Context(),
				fmt.Sprintf("10.0.%d.%d", n/250, n%250)); err != nil || !v.Allowed {
				t.Fatal(v, err)
			}
		}
		if _, addresses := w.accounts.BucketCounts(); addresses > 2048 {
			t.Errorf("%d addresses are counted", addresses)
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	w := newWorld(b, "memory", limits(1<<30, 1<<30, 1))
	i := w.clientWithKey()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		by, err := w.accounts.Authenticate(ctx, i.Secret)
		if err != nil {
			b.Fatal(err)
		}
		if v, err := w.accounts.Allow(ctx, by); err != nil || !v.Allowed {
			b.Fatal(v, err)
		}
	}
}
