package live

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/job"
)

const (
	// MaxNumbers bounds the jobs of one watch.
	MaxNumbers = 100
	// maxWatches bounds the watches of a node.
	maxWatches = 1000
	// silentReadings is after how many readings without a change a watch tells that.
	silentReadings = 15
	// maxReadings is after how many readings a watch ends, so that the next one is authorized anew.
	maxReadings = 600
)

// Changes are what has changed since a watch was asked last. Without any they have an ID alone.
type Changes struct {
	ID string // with it another watch goes on behind these changes
	// Reset says that what was told before an ID that was not from here is worth nothing. All that
	// there is follows.
	Reset      bool
	Queues     []job.QueueCount // of those that have changed, by contract and queue
	Jobs       []Job            // by number
	Operations []*bulk.Operation
}

// Watch tells one caller what changes. Its methods are for one goroutine. Close ends it.
type Watch struct {
	hub     *Hub
	numbers []int64
	session string
	began   uint64 // the first reading that it needs
	told    uint64 // the reading up to which the caller was told
	asked   uint64 // the reading of the last answer
	first   bool
	reset   bool
}

// Watch begins to watch the counts of all queues, bulk operations, and the jobs with these numbers.
// after is the ID behind which it goes on; with an empty one it begins with all that there is. The
// watch ends with the session, if one is named. An error is Unavailable: the node stops, or too
// many watch.
func (h *Hub) Watch(numbers []int64, after, session string) (*Watch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.watches >= maxWatches {
		return nil, &job.Error{Kind: job.Unavailable, Op: "live.watch",
			Msg: "the node is stopping, or too many watch events on it"}
	}
	w := &Watch{hub: h, numbers: numbers, session: session, began: h.begun + 1,
		asked: h.begun, first: true}
	if told, known := h.parseID(after); known {
		w.told = told
	} else {
		w.reset = after != ""
	}
	h.watches++
	for _, number := range numbers {
		h.numbers[number]++
	}
	if session != "" {
		h.sessions[session]++
	}
	select {
	case h.wanted <- struct{}{}:
	default: // it is known already
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watches--
	for _, number := range w.numbers {
		if h.numbers[number]--; h.numbers[number] == 0 {
			delete(h.numbers, number)
		}
	}
	if h.sessions[w.session]--; h.sessions[w.session] <= 0 {
		delete(h.sessions, w.session)
	}
}

// Next waits for changes and returns them, or none when nothing has changed for a while. It returns
// false when ctx or the session has ended, the node stops, or the watch has lasted long enough.
func (w *Watch) Next(ctx context.Context) (Changes, bool) {
	for {
		c, read, ok := w.look()
		if read == nil {
			return c, ok
		}
		select {
		case <-read:
		case <-ctx.Done():
			return Changes{}, false
		}
	}
}

// look returns what has changed, or where there is nothing to tell, what is closed by the next
// reading.
func (w *Watch) look() (c Changes, read <-chan struct{}, ok bool) {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || h.ended >= w.began+maxReadings:
		return c, nil, false
	case h.ended < w.began:
		return c, h.read, false
	case w.session != "" && !h.inForce[w.session]:
		return c, nil, false
	case !w.first && h.changed <= w.told && h.ended < w.asked+silentReadings:
		return c, h.read, false
	}
	if w.told < h.floor && (w.told > 0 || !w.first) {
		w.told, w.reset = 0, true
	}
	c = Changes{ID: h.formatID(h.changed), Reset: w.reset,
		Queues: h.counts.since(w.told), Operations: h.operations.since(w.told)}
	told := w.told
	if w.first || w.reset {
		told = 0 // the numbers may be others than those of before
	}
	for _, number := range w.numbers {
		if r := h.jobs.rows[number]; r.reading > told {
			c.Jobs = append(c.Jobs, r.value)
		}
	}
	slices.SortFunc(c.Queues, func(a, b job.QueueCount) int {
		return cmp.Or(cmp.Compare(a.Contract, b.Contract), cmp.Compare(a.Queue, b.Queue))
	})
	slices.SortFunc(c.Operations, func(a, b *bulk.Operation) int { return cmp.Compare(a.ID, b.ID) })
	w.told, w.asked, w.first, w.reset = h.changed, h.ended, false, false
	return c, nil, true
}

// formatID returns the ID of a reading of this node.
func (h *Hub) formatID(reading uint64) string {
	return h.Engine.Node() + "/" + strconv.FormatUint(reading, 10)
}

// parseID returns the reading of an ID; false if this node has not given it, or no longer knows all
// that has changed since.
func (h *Hub) parseID(id string) (uint64, bool) {
	node, text, _ := strings.Cut(id, "/")
	reading, err := strconv.ParseUint(text, 10, 64)
	if err != nil || node != h.Engine.Node() {
		return 0, false
	}
	return reading, reading <= h.changed && reading >= h.floor
}
