package series

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Query selects a series. An empty job type means the sum of all job types, and an empty queue the
// sum of all queues of a job type.
type Query struct {
	JobType string
	Queue   string
	// From is inclusive, To exclusive. The zero times are one hour ago and now.
	From, To time.Time
	// Step is the time between two points, a multiple of a step that is kept; 0 chooses one by the
	// length of the series.
	Step time.Duration
}

// Point is what was counted in a step.
type Point struct {
	At      time.Time
	Partial bool // the step has not ended, or the nodes may not have written all of it
	// Unknown says that the queue may have been counted together with those beyond the bound.
	Unknown bool
	Bucket
}

// Series is what a query returns: a point for each step, whether or not something was counted.
type Series struct {
	From, To time.Time
	Step     time.Duration
	Points   []Point
}

const (
	// defaultRange is the length of a series if the query has no From.
	defaultRange = time.Hour
	// maxPoints bounds the points of a series, and defaultPoints those of a query without Step.
	maxPoints     = 3000
	defaultPoints = 400
	// readBatch bounds the records of one read.
	readBatch = 500
	// writeTime is the time after its end in which all nodes write a step.
	writeTime = 2 * time.Second
)

// defaultSteps are the steps from which one is chosen for a query without Step.
var defaultSteps = []time.Duration{interval, time.Minute, 5 * time.Minute, time.Hour, 6 * time.Hour,
	24 * time.Hour}

// Read reads a series of all nodes. Its last step has what this node has counted and not written
// yet. An error of the query is Invalid.
func (r *Recorder) Read(ctx context.Context, q Query) (s Series, err error) {
	err = r.Engine.ViewRecords(ctx, func(reader engine.RecordReader) error {
		now := reader.Now()
		l, err := q.resolve(now)
		if err != nil {
			return err
		}
		s = newSeries(&q, now)
		owner := ""
		if q.Queue != "" {
			owner = q.JobType
		}
		begin := q.To // of the first record
		err = eachRecord(ofOwner(reader, l.kind, owner), q.From,
			func(at time.Time, record *job.Record) (bool, error) {
				if at.Before(begin) {
					begin = at
				}
				return at.Before(q.To), s.addRecord(at, record, &q)
			})
		if err != nil {
			return err
		}
		if l.before != "" {
			err = eachRecord(ofOwner(reader, l.before, owner), q.From,
				func(at time.Time, record *job.Record) (bool, error) {
					if !at.Before(begin) {
						return false, nil
					}
					return true, s.addRecord(at, record, &q)
				})
		}
		if err != nil {
			return err
		}
		r.addUnwritten(&s, now, &q)
		return nil
	})
	return s, err
}

// addRecord adds the counts of a record that a query selects.
func (s *Series) addRecord(at time.Time, record *job.Record, q *Query) error {
	all, err := decode(record, cmp.Or(q.Queue, q.JobType))
	s.add(at, all, q)
	return err
}

// addUnwritten adds what this node has counted and not written.
func (r *Recorder) addUnwritten(s *Series, now time.Time, q *Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.collect()
	if q.Queue != "" {
		s.add(now, t.queues[q.JobType], q)
		return
	}
	s.add(now, t.totals, q)
}

// add adds the counts that a query selects to the step that contains a time.
func (s *Series) add(at time.Time, all buckets, q *Query) {
	p := s.point(at)
	if p == nil {
		return
	}
	name := cmp.Or(q.Queue, q.JobType)
	selected := &Bucket{}
	for of, b := range all {
		if name == "" || of == name {
			selected.mergeJobs(b)
		}
	}
	p.Bucket.mergeTimes(selected)
	p.Unknown = p.Unknown || (q.Queue != "" && !all.counts(q.Queue))
}

// counts reports whether a record has all counts of a queue. If it has queues beyond the bound, a
// queue without a bucket of its own may be one of them.
func (all buckets) counts(queue string) bool { return all[queue] != nil || all[beyond] == nil }

// resolve completes a query, aligns its times with its step, and returns the layer to read.
func (q *Query) resolve(now time.Time) (*layer, error) {
	if q.To.IsZero() || q.To.After(now) {
		q.To = now
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-defaultRange)
	}
	if !q.From.Before(q.To) {
		return nil, errQuery("from must be before to and before now")
	}
	l, finest := (*layer)(nil), layers[len(layers)-1].step
	for i := range layers {
		if now.Sub(q.From) > layers[i].keep+keepMargin {
			continue
		}
		finest = min(finest, layers[i].step)
		if q.Step == 0 {
			q.chooseStep(layers[i].step)
		}
		if q.Step >= layers[i].step && q.Step%layers[i].step == 0 {
			l = &layers[i] // the longest that fits has the fewest records
		}
	}
	switch points := int64(q.To.Sub(q.From) / max(1, q.Step)); {
	case now.Sub(q.From) > layers[len(layers)-1].keep+keepMargin:
		return nil, errQuery("from must not be longer ago than 90 days")
	case l == nil:
		return nil, errQuery("step must be a multiple of " + setting.FormatDuration(finest) +
			", as shorter steps are not kept since from")
	case points > maxPoints:
		return nil, errQuery(fmt.Sprintf("there would be more than %d points; a longer step or a "+
			"shorter time gives fewer", maxPoints))
	}
	q.From = q.From.Truncate(q.Step)
	return l, nil
}

// chooseStep chooses a step that gives few points.
func (q *Query) chooseStep(shortest time.Duration) {
	for _, step := range defaultSteps {
		q.Step = step
		if step >= shortest && q.To.Sub(q.From) <= defaultPoints*step {
			return
		}
	}
}

func errQuery(msg string) error {
	return &job.Error{Kind: job.Invalid, Op: "series.read", Msg: msg}
}

// newSeries makes a series without counts.
func newSeries(q *Query, now time.Time) Series {
	s := Series{From: q.From, To: q.To, Step: q.Step}
	for at := q.From; at.Before(q.To); at = at.Add(q.Step) {
		s.Points = append(s.Points, Point{At: at,
			Partial: at.Add(q.Step + writeTime).After(now)})
	}
	return s
}

// point returns the point whose step has a time, nil if there is none.
func (s *Series) point(at time.Time) *Point {
	i := int(at.Sub(s.From) / s.Step)
	if at.Before(s.From) || i >= len(s.Points) {
		return nil
	}
	return &s.Points[i]
}

// readRecords reads the next readBatch records behind a key.
type readRecords func(after string) ([]job.Record, error)

// ofOwner reads the records of a kind and owner.
func ofOwner(r engine.RecordReader, kind, owner string) readRecords {
	return func(after string) ([]job.Record, error) {
		return r.Records(kind, owner, after, readBatch)
	}
}

// eachRecord calls fn with records from a time on, by time, until it returns false or an error.
func eachRecord(read readRecords, from time.Time,
	fn func(at time.Time, record *job.Record) (more bool, err error)) error {
	for after := keyOf(from); ; {
		records, err := read(after)
		if err != nil {
			return err
		}
		for i := range records {
			record := &records[i]
			seconds, err := strconv.ParseInt(record.Key[:min(keyDigits, len(record.Key))], 10, 64)
			if err != nil {
				return errUnreadable(record)
			}
			more, err := fn(time.Unix(seconds, 0).UTC(), record)
			if err != nil || !more {
				return err
			}
			after = record.Key
		}
		if len(records) < readBatch {
			return nil
		}
	}
}

// RateWindow is the length of a Window.
const RateWindow = 5 * time.Minute

// Window is what was counted of a queue in the last five minutes. Its Depth and Oldest are the
// largest of that time and not the present ones.
type Window struct {
	Bucket
	// Covered is the time since the first count of the queue, at most five minutes.
	Covered time.Duration
}

// PerMinute converts a count of the window to a rate per minute. If Covered is less than a minute,
// it counts as one, so that a single job is not taken for a high rate.
func (w *Window) PerMinute(count uint64) float64 {
	return float64(count) / max(w.Covered, time.Minute).Minutes()
}

// Windows has the windows of queues, with the counts of all nodes.
type Windows struct{ of map[string]*jobTypeWindows }

// jobTypeWindows has the windows of some queues of a job type, by the names of the queues.
type jobTypeWindows struct {
	now    time.Time
	queues map[string]*queueWindow
	// beyondBound is how many records have counts of queues beyond the bound.
	beyondBound int
}

// queueWindow is the window of a queue, as far as it is read.
type queueWindow struct {
	Window
	// present is how many of the records counted by beyondBound count this queue by itself.
	present int
}

// Of returns the window of a queue. It returns nil if the window is not known, because there were
// too many queues to count each of them.
func (w *Windows) Of(jobType, queue string) *Window {
	c := w.of[jobType]
	if c == nil || c.queues[queue] == nil || c.queues[queue].present < c.beyondBound {
		return nil
	}
	return &c.queues[queue].Window
}

// Windows returns the windows of some queues, whose names are given by job type. It reads the
// records of these job types, and decodes the buckets of these queues alone.
func (r *Recorder) Windows(reader engine.RecordReader,
	queues map[string][]string) (*Windows, error) {
	of, err := r.readWindows(reader, queues)
	return &Windows{of}, err
}

// StartedPerMinute returns how many jobs of a queue have started per minute, in the last five
// minutes; 0 if that is not known.
func (r *Recorder) StartedPerMinute(reader engine.RecordReader, jobType,
	queue string) (float64, error) {
	windows, err := r.Windows(reader, map[string][]string{jobType: {queue}})
	w := windows.Of(jobType, queue)
	if w == nil || err != nil {
		return 0, err
	}
	return w.PerMinute(w.Started), nil
}

// readWindows returns what Windows has, by job type.
func (r *Recorder) readWindows(reader engine.RecordReader,
	queues map[string][]string) (map[string]*jobTypeWindows, error) {
	all, read := map[string]*jobTypeWindows{}, readRecords(nil)
	for jobType, names := range queues {
		c := &jobTypeWindows{now: reader.Now(), queues: map[string]*queueWindow{}}
		for _, name := range names {
			c.queues[name] = &queueWindow{}
		}
		all[jobType], read = c, ofOwner(reader, layers[0].kind, jobType)
	}
	switch len(all) {
	case 0:
		return all, nil
	case 1:
	default: // one statement for all of them
		read = func(after string) ([]job.Record, error) {
			return reader.AllRecords(layers[0].kind, after, readBatch)
		}
	}
	err := eachRecord(read, reader.Now().Add(-RateWindow),
		func(at time.Time, record *job.Record) (bool, error) {
			if c := all[record.Owner]; c != nil {
				return true, c.add(at, record)
			}
			return true, nil
		})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for jobType, c := range all {
		c.addUnwritten(r.collect().queues[jobType])
	}
	return all, nil
}

// add adds the record of a step. Records are added in the order of their steps.
func (c *jobTypeWindows) add(at time.Time, record *job.Record) error {
	hasBeyond, present := false, []*queueWindow(nil)
	isWanted := func(name []byte) bool {
		hasBeyond = hasBeyond || string(name) == beyond
		return c.queues[string(name)] != nil
	}
	err := eachBucket(record, isWanted, func(name []byte, b *Bucket) {
		q := c.queues[string(name)]
		q.Bucket.mergeTimes(b)
		q.Covered = max(q.Covered, min(c.now.Sub(at), RateWindow))
		present = append(present, q)
	})
	if hasBeyond {
		c.beyondBound++
		for _, q := range present {
			q.present++
		}
	}
	return err
}

// addUnwritten adds what this node has counted since it last wrote a record.
func (c *jobTypeWindows) addUnwritten(all buckets) {
	if all[beyond] != nil {
		c.beyondBound++
	}
	for name, q := range c.queues {
		if b := all[name]; b != nil {
			q.Bucket.mergeTimes(b)
		}
		if all[name] != nil && all[beyond] != nil {
			q.present++
		}
	}
}
