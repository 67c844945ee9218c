package account

import (
	"testing"
	"time"
)

// TestLease lets one node take a whole window.
func TestLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit int
		want  []int // the first pieces
		max   int   // pieces in all
	}{
		{1, []int{1}, 1},
		{20, []int{1, 1}, 20},
		{600, []int{8, 8, 16, 30, 30}, 50},
		{1_000_000, []int{8, 8, 16, 32, 64, 128}, 90},
	} {
		q := quota{limit: c.limit}
		taken, pieces := 0, 0
		for rest := c.limit; rest > 0; pieces++ {
			n := q.leaseSize(rest, taken)
			if n < 1 || n > rest || (pieces < len(c.want) && n != c.want[pieces]) {
				t.Fatalf("limit %d: piece %d is %d of %d, want %v", c.limit, pieces, n, rest,
					c.want)
			}
			taken, rest = taken+n, rest-n
		}
		if pieces > c.max {
			t.Errorf("limit %d took %d pieces, want at most %d", c.limit, pieces, c.max)
		}
		for _, rest := range []int{0, -5} { // a node with a higher limit came before
			if n := q.leaseSize(rest, taken); n != 0 {
				t.Errorf("limit %d: leased %d of %d", c.limit, n, rest)
			}
		}
	}
	s := lease{}
	for range 2 {
		s.add(lease{windowEnd: time.Unix(60, 0), leased: 8, remaining: 8})
	}
	if s.leased != 16 || s.remaining != 16 {
		t.Errorf("two leases of one window make %+v", s)
	}
	if s.add(lease{windowEnd: time.Unix(120, 0), leased: 8, remaining: 8}); s.leased != 8 ||
		s.remaining != 8 {
		t.Errorf("what was left of a window counts in the next: %+v", s)
	}
}

// TestStoreClock looks at a store that answers slowly.
func TestStoreClock(t *testing.T) {
	t.Parallel()
	epoch := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	elapsed := time.Duration(0)
	c := storeClock{elapsed: func() time.Duration { return elapsed }}
	if !c.now().IsZero() {
		t.Error("it knows the time before any look")
	}
	const s = time.Second
	for _, tt := range []struct {
		name               string
		now, before, after time.Duration
		elapsed, wantMax   time.Duration
	}{
		// The store's time is the elapsed time, until it jumps.
		{"the time is never too early", 3 * s, 1 * s, 4 * s, 4 * s, 6 * s},
		{"a quick look is believed over a slow one", 10 * s, 10 * s, 11 * s, 11 * s, 11 * s},
		{"a slow one then changes nothing", 20 * s, 12 * s, 21 * s, 21 * s, 21 * s},
		{"a jump ahead", 3600 * s, 22 * s, 23 * s, 23 * s, 3601 * s},
		{"a jump back", 30 * s, 30 * s, 31 * s, 31 * s, 31 * s},
	} {
		elapsed = tt.elapsed
		c.observe(epoch.Add(tt.now), tt.before, tt.after)
		if got, want := c.now().Sub(epoch), tt.wantMax; got != want {
			t.Errorf("%s: got %v, want %v", tt.name, got, want)
		}
	}
	elapsed += 5 * s
	if got := c.now().Sub(epoch); got != 36*s {
		t.Errorf("5 s later it is %v", got)
	}
}
