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
	// silentReadings is after how many readings without a change a watch reports that.
	silentReadings = 15
	// maxReadings is after how many readings a watch ends, so that the caller is authorized again
	// for the next one.
	maxReadings = 600
)

// Changes are what has changed since a watch was asked last. Without any they have an ID alone.
type Changes struct {
	ID string // with it another watch goes on behind these changes
	// Reset says that what was reported before an ID of another hub is no longer valid. All that
	// there is follows.
	Reset      bool
	Queues     []job.QueueCount // of those that have changed, by contract and queue
	Jobs       []Job            // by number
	Operations []*bulk.Operation
}

// Watch reports to one caller what changes. Its methods are for one goroutine. Close ends it.
type Watch struct {
	hub          *Hub
	numbers      []int64
	session      string
	firstReading uint64 // the first reading that it needs
	reported     uint64 // the reading up to which changes were returned
	lastAnswered uint64 // the reading of the last answer
	first        bool
	reset        bool
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
	w := &Watch{hub: h, numbers: numbers, session: session, firstReading: h.started + 1,
		lastAnswered: h.started, first: true}
	if reported, known := h.parseID(after); known {
		w.reported = reported
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
		c, read, ok := w.poll()
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

// poll returns the changes of the last reading, if the watch has some to report. Otherwise it
// returns a channel that the next reading closes. ok is false when the watch has ended.
func (w *Watch) poll() (c Changes, read <-chan struct{}, ok bool) {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || h.ended >= w.firstReading+maxReadings:
		return c, nil, false
	case h.ended < w.firstReading:
		return c, h.read, false
	case w.session != "" && !h.inForce[w.session]:
		return c, nil, false
	case !w.first && h.changed <= w.reported && h.ended < w.lastAnswered+silentReadings:
		return c, h.read, false
	}
	if w.reported < h.floor && (w.reported > 0 || !w.first) {
		w.reported, w.reset = 0, true
	}
	c = Changes{ID: h.formatID(h.changed), Reset: w.reset,
		Queues: h.counts.since(w.reported), Operations: h.operations.since(w.reported)}
	reported := w.reported
	if w.first || w.reset {
		reported = 0 // the watch may have other numbers than before
	}
	for _, number := range w.numbers {
		if r := h.jobs.rows[number]; r.reading > reported {
			c.Jobs = append(c.Jobs, r.value)
		}
	}
	slices.SortFunc(c.Queues, func(a, b job.QueueCount) int {
		return cmp.Or(cmp.Compare(a.Contract, b.Contract), cmp.Compare(a.Queue, b.Queue))
	})
	slices.SortFunc(c.Operations, func(a, b *bulk.Operation) int { return cmp.Compare(a.ID, b.ID) })
	w.reported, w.lastAnswered, w.first, w.reset = h.changed, h.ended, false, false
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
