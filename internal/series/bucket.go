package series

import (
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// Bucket is what was counted in a step.
type Bucket struct {
	engine.Activity
	Depth    uint64        // the most ready jobs that were seen
	Oldest   time.Duration // the longest that one of them had been ready
	Requests uint64
	Errors   uint64 // answers with a status of 500 or above
}

// join adds what was counted of the same jobs at another time, or on another node, which sees the
// same ready jobs.
func (b *Bucket) join(o *Bucket) {
	b.addCounts(o)
	b.Depth, b.Oldest = max(b.Depth, o.Depth), max(b.Oldest, o.Oldest)
}

// sum adds what was counted of other jobs at the same time.
func (b *Bucket) sum(o *Bucket) {
	b.addCounts(o)
	b.Depth, b.Oldest = b.Depth+o.Depth, max(b.Oldest, o.Oldest)
}

func (b *Bucket) addCounts(o *Bucket) {
	b.Activity.Add(&o.Activity)
	b.Requests += o.Requests
	b.Errors += o.Errors
}

// buckets are the buckets of a record by name: contracts in a record of totals, else queues. The
// empty queue is all those beyond the bound.
type buckets map[string]*Bucket

// of returns the bucket of a name, an empty one the first time.
func (all buckets) of(name string) *Bucket {
	if all[name] == nil {
		all[name] = &Bucket{}
	}
	return all[name]
}

// bounded is of for what is to be stored: names beyond maxNames share a bucket.
func (all buckets) bounded(name string) *Bucket {
	if all[name] == nil && len(all) >= maxNames {
		name = ""
	}
	return all.of(name)
}

// maxNames bounds the buckets of a record.
const maxNames = 200

// format is the version of encoded buckets, their first byte.
const format = 1

// encode returns buckets as bytes: for each its name after its length, and its numbers in the
// order of numbers, all of variable length.
func (all buckets) encode() []byte {
	b := []byte{format}
	for name, bucket := range all {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		bucket.each(func(n uint64) uint64 {
			b = binary.AppendUvarint(b, n)
			return n
		})
	}
	return b
}

// each calls fn with each number of a bucket, in the order in which they are stored, and sets the
// number to what fn returns.
func (b *Bucket) each(fn func(uint64) uint64) {
	oldest := uint64(b.Oldest / time.Millisecond)
	for _, n := range []*uint64{&b.Submitted, &b.Started, &b.Succeeded, &b.Failed, &b.Depth,
		&oldest, &b.Requests, &b.Errors} {
		*n = fn(*n)
	}
	b.Oldest = time.Duration(oldest) * time.Millisecond
	for _, h := range []*engine.Histogram{&b.Wait, &b.Run} {
		for i := range h {
			h[i] = uint32(fn(uint64(h[i])))
		}
	}
}

// decode reads the buckets of a record.
func decode(r *job.Record) (buckets, error) {
	all, rest := buckets{}, r.Body
	if len(rest) == 0 || rest[0] != format {
		return nil, errUnreadable(r)
	}
	valid := true
	next := func(uint64) uint64 {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			valid = false
			return 0
		}
		rest = rest[size:]
		return n
	}
	for rest = rest[1:]; len(rest) > 0 && valid; {
		length := next(0)
		if length > uint64(len(rest)) {
			return nil, errUnreadable(r)
		}
		name := string(rest[:length])
		rest = rest[length:]
		all[name] = &Bucket{}
		all[name].each(next)
	}
	if !valid {
		return nil, errUnreadable(r)
	}
	return all, nil
}

func errUnreadable(r *job.Record) error {
	return &job.Error{Op: "series.read", Msg: "the stored step " + r.Key + " cannot be read"}
}
