package series

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Query selects a series. An empty contract means all contracts together, an empty queue all of a
// contract.
type Query struct {
	Contract string
	Queue    string
	// From is inclusive, To exclusive. The zero times are one hour ago and now.
	From, To time.Time
	// Step is that of the points, a multiple of one that is kept; 0 leaves it to the length of the
	// time.
	Step time.Duration
}

// Point is what was counted in a step.
type Point struct {
	At      time.Time
	Partial bool // the step is not over, or not all of it is written
	Bucket
}

// Series are the points of a query, one for each step, whether or not something was counted.
type Series struct {
	From, To time.Time
	Step     time.Duration
	Points   []Point
}

const (
	// defaultRange is the time of a series for which none is asked for.
	defaultRange = time.Hour
	// maxPoints bounds the points of a series, and goodPoints those where no step is asked for.
	maxPoints  = 3000
	goodPoints = 400
	// readBatch bounds the records of one read.
	readBatch = 500
	// writeTime is how long after its end all nodes have written a step.
	writeTime = 2 * time.Second
)

// goodSteps are the steps that are chosen where none is asked for.
var goodSteps = []time.Duration{interval, time.Minute, 5 * time.Minute, time.Hour, 6 * time.Hour,
	24 * time.Hour}

// Read reads a series of all nodes. What this node has counted and not written is in it, in the
// last step. An error of the query is Invalid.
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
			owner = q.Contract
		}
		err = eachRecord(reader, l.kind, owner, q.From, func(at time.Time, all buckets) bool {
			if p := s.point(at); p != nil {
				p.Bucket.join(all.selected(&q))
			}
			return at.Before(q.To)
		})
		if err != nil {
			return err
		}
		if p := s.point(now); p != nil {
			p.Bucket.join(r.unwritten(&q))
		}
		return nil
	})
	return s, err
}

// unwritten returns what this node has counted and not written.
func (r *Recorder) unwritten(q *Query) *Bucket {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.collect()
	if q.Queue != "" {
		return t.queues[q.Contract].selected(q)
	}
	return t.totals.selected(q)
}

// selected returns the bucket that a query asks for, of a record that it has chosen.
func (all buckets) selected(q *Query) *Bucket {
	name := q.Queue
	if name == "" {
		name = q.Contract
	}
	selected := &Bucket{}
	for of, b := range all {
		if name == "" || of == name {
			selected.sum(b)
		}
	}
	return selected
}

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
	for _, step := range goodSteps {
		q.Step = step
		if step >= shortest && q.To.Sub(q.From) <= goodPoints*step {
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

// eachRecord calls fn with the steps of a layer from a time on, by time, until it returns false.
func eachRecord(r engine.RecordReader, kind, owner string, from time.Time,
	fn func(at time.Time, all buckets) bool) error {
	for after := keyOf(from); ; {
		records, err := r.Records(kind, owner, after, readBatch)
		if err != nil {
			return err
		}
		for i := range records {
			record := &records[i]
			seconds, err := strconv.ParseInt(record.Key[:min(keyDigits, len(record.Key))], 10, 64)
			if err != nil {
				return errUnreadable(record)
			}
			all, err := decode(record)
			if err != nil {
				return err
			}
			if !fn(time.Unix(seconds, 0).UTC(), all) {
				return nil
			}
			after = record.Key
		}
		if len(records) < readBatch {
			return nil
		}
	}
}

// RateWindow is the time of Recent.
const RateWindow = 5 * time.Minute

// Recent returns what was counted in the last five minutes on all nodes, by contract and queue, of
// the contracts that are named. Depth and Oldest are not those of now.
func (r *Recorder) Recent(ctx context.Context, contracts []string) (map[[2]string]*Bucket, error) {
	var recent map[[2]string]*Bucket
	err := r.Engine.ViewRecords(ctx, func(reader engine.RecordReader) error {
		recent = map[[2]string]*Bucket{}
		for _, contract := range contracts {
			counted := buckets{}
			err := eachRecord(reader, layers[0].kind, contract,
				reader.Now().Add(-RateWindow), func(_ time.Time, all buckets) bool {
					for queue, b := range all {
						counted.of(queue).join(b)
					}
					return true
				})
			if err != nil {
				return err
			}
			r.addUnwritten(contract, counted)
			for queue, b := range counted {
				recent[[2]string{contract, queue}] = b
			}
		}
		return nil
	})
	return recent, err
}

// addUnwritten adds what this node has counted of a contract and not written.
func (r *Recorder) addUnwritten(contract string, counted buckets) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue, b := range r.collect().queues[contract] {
		counted.of(queue).join(b)
	}
}
