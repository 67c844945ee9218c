package postgres

import (
	"slices"
	"testing"
)

func TestWatermarksOfPriorities(t *testing.T) {
	t.Parallel()
	w := newQueueWatermarks()
	w = w.advance([]head{{priority: 5, orderTime: 70}}, 100)
	w = w.advance([]head{{priority: 4, orderTime: 300}}, 200)
	// Nothing was seen of priority 5 the second time, and no watermark is after that time. The
	// ranges above and below have none.
	if want := []int64{5, 4}; !slices.Equal(w.high[1:3], want) || !slices.Equal(w.low[1:3], want) ||
		!slices.Equal(w.since[1:3], []int64{200, 200}) || len(w.high) != 4 {
		t.Errorf("watermarks are %+v", w)
	}
}
