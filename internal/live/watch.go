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
	// Reset says that what was reported before an ID of another monitor is no longer valid. All
	// that there is follows.
	Reset      bool
	Queues     []job.QueueCount // of those that have changed, by contract and queue
	Jobs       []Job            // by number
	Operations []*bulk.Operation
}

// Watch reports to one caller what changes. Its methods are for one goroutine. Close ends it.
type Watch struct {
	monitor      *Monitor
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
func (m *Monitor) Watch(numbers []int64, after, session string) (*Watch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.watches >= maxWatches {
		return nil, &job.Error{Kind: job.Unavailable, Op: "live.watch",
			Msg: "the node is stopping, or too many watch events on it"}
	}
	w := &Watch{monitor: m, numbers: numbers, session: session, firstReading: m.started + 1,
		lastAnswered: m.started, first: true}
	if reported, known := m.parseID(after); known {
		w.reported = reported
	} else {
		w.reset = after != ""
	}
	m.watches++
	for _, number := range numbers {
		m.numbers[number]++
	}
	if session != "" {
		m.sessions[session]++
	}
	select {
	case m.wanted <- struct{}{}:
	default: // it is known already
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() {
	m := w.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches--
	for _, number := range w.numbers {
		if m.numbers[number]--; m.numbers[number] == 0 {
			delete(m.numbers, number)
		}
	}
	if m.sessions[w.session]--; m.sessions[w.session] <= 0 {
		delete(m.sessions, w.session)
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
	m := w.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed || m.ended >= w.firstReading+maxReadings:
		return c, nil, false
	case m.ended < w.firstReading:
		return c, m.read, false
	case w.session != "" && !m.inForce[w.session]:
		return c, nil, false
	case !w.first && m.changed <= w.reported && m.ended < w.lastAnswered+silentReadings:
		return c, m.read, false
	}
	if w.reported < m.floor && (w.reported > 0 || !w.first) {
		w.reported, w.reset = 0, true
	}
	c = Changes{ID: m.formatID(m.changed), Reset: w.reset,
		Queues: m.counts.since(w.reported), Operations: m.operations.since(w.reported)}
	reported := w.reported
	if w.first || w.reset {
		reported = 0 // the watch may have other numbers than before
	}
	for _, number := range w.numbers {
		if r := m.jobs.rows[number]; r.reading > reported {
			c.Jobs = append(c.Jobs, r.value)
		}
	}
	slices.SortFunc(c.Queues, func(a, b job.QueueCount) int {
		return cmp.Or(cmp.Compare(a.JobType, b.JobType), cmp.Compare(a.Queue, b.Queue))
	})
	slices.SortFunc(c.Operations, func(a, b *bulk.Operation) int { return cmp.Compare(a.ID, b.ID) })
	w.reported, w.lastAnswered, w.first, w.reset = m.changed, m.ended, false, false
	return c, nil, true
}

// formatID returns the ID of a reading of this node.
func (m *Monitor) formatID(reading uint64) string {
	return m.Engine.Node() + "/" + strconv.FormatUint(reading, 10)
}

// parseID returns the reading of an ID; false if this node has not given it, or no longer knows all
// that has changed since.
func (m *Monitor) parseID(id string) (uint64, bool) {
	node, text, _ := strings.Cut(id, "/")
	reading, err := strconv.ParseUint(text, 10, 64)
	if err != nil || node != m.Engine.Node() {
		return 0, false
	}
	return reading, reading <= m.changed && reading >= m.floor
}
