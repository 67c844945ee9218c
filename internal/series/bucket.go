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

// mergeTimes adds what was counted of the same jobs at another time, or on another node, which sees
// the same ready jobs.
func (b *Bucket) mergeTimes(o *Bucket) {
	b.addCounts(o)
	b.Depth, b.Oldest = max(b.Depth, o.Depth), max(b.Oldest, o.Oldest)
}

// mergeJobs adds what was counted of other jobs at the same time.
func (b *Bucket) mergeJobs(o *Bucket) {
	b.addCounts(o)
	b.Depth, b.Oldest = b.Depth+o.Depth, max(b.Oldest, o.Oldest)
}

func (b *Bucket) addCounts(o *Bucket) {
	b.Activity.Add(&o.Activity)
	b.Requests += o.Requests
	b.Errors += o.Errors
}

// buckets are the buckets of a record by name: job types in a record of totals, else queues.
type buckets map[string]*Bucket

// beyond is the name of the bucket that all queues beyond the bound of a record share.
const beyond = ""

// of returns the bucket of a name, an empty one the first time.
func (all buckets) of(name string) *Bucket {
	if all[name] == nil {
		all[name] = &Bucket{}
	}
	return all[name]
}

// bounded is of for counts that are to be stored: names beyond maxNames share a bucket.
func (all buckets) bounded(name string) *Bucket {
	named := len(all)
	if all[beyond] != nil {
		named--
	}
	if all[name] == nil && named >= maxNames {
		name = beyond
	}
	return all.of(name)
}

// maxNames bounds the names of a record.
const maxNames = 200

// format is the version of encoded buckets, their first byte, and formerFormat that of records from
// before the numbers had their length before them and zeros were counted.
const (
	format       = 2
	formerFormat = 1
)

// encode returns buckets as bytes: for each its name and its numbers, both after their length. The
// numbers have the order of each and a variable length. Of zeros the first one is followed by how
// many more there are, and none are written at the end.
func (all buckets) encode() []byte {
	b, numbers := []byte{format}, []byte(nil)
	for name, bucket := range all {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		numbers = bucket.appendNumbers(numbers[:0])
		b = binary.AppendUvarint(b, uint64(len(numbers)))
		b = append(b, numbers...)
	}
	return b
}

// appendNumbers appends the numbers of a bucket.
func (b *Bucket) appendNumbers(to []byte) []byte {
	zeros := uint64(0)
	b.eachStored(func(n uint64) uint64 {
		if n == 0 {
			zeros++
			return n
		}
		if zeros > 0 {
			to = binary.AppendUvarint(append(to, 0), zeros-1)
			zeros = 0
		}
		to = binary.AppendUvarint(to, n)
		return n
	})
	return to
}

// each calls fn with the numbers of a bucket that both formats have, in the order in which they are
// stored, and sets each number to what fn returns.
func (b *Bucket) each(fn func(uint64) uint64) {
	oldest := uint64(b.Oldest / time.Millisecond)
	for _, n := range []*uint64{&b.Submitted, &b.Started, &b.Succeeded, &b.Failed, &b.Depth,
		&oldest, &b.Requests, &b.Errors} {
		*n = fn(*n)
	}
	b.Oldest = time.Duration(oldest) * time.Millisecond
	for _, h := range []*engine.Histogram{&b.Wait.Histogram, &b.Run.Histogram} {
		for i := range h {
			h[i] = uint32(fn(uint64(h[i])))
		}
	}
}

// eachStored is each with the numbers that formerFormat does not have. A node of a version without
// them reads the others.
func (b *Bucket) eachStored(fn func(uint64) uint64) {
	b.each(fn)
	for _, d := range []*engine.Durations{&b.Wait, &b.Run} {
		d.Longest = time.Duration(fn(uint64(d.Longest/time.Microsecond))) * time.Microsecond
	}
}

// decode reads the buckets of a record; of those of a name, if only is not empty, the one with the
// name and that of all beyond the bound.
func decode(r *job.Record, only string) (buckets, error) {
	all := buckets{}
	isWanted := func(name []byte) bool {
		return only == "" || string(name) == only || string(name) == beyond
	}
	err := eachBucket(r, isWanted, func(name []byte, b *Bucket) {
		one := *b
		all[string(name)] = &one
	})
	return all, err
}

// eachBucket calls fn with the buckets of a record whose names are wanted. fn keeps neither.
func eachBucket(r *job.Record, isWanted func(name []byte) bool, fn func([]byte, *Bucket)) error {
	d := decoder{rest: r.Body}
	version := d.next()
	if version != format && version != formerFormat {
		return errUnreadable(r)
	}
	for len(d.rest) > 0 && !d.invalid {
		name := d.text(d.next())
		if version == formerFormat {
			d.former(name, isWanted, fn)
			continue
		}
		numbers := decoder{rest: d.text(d.next())}
		if !isWanted(name) {
			continue
		}
		var b Bucket
		b.eachStored(numbers.nextOrZero)
		d.invalid = d.invalid || numbers.invalid
		fn(name, &b)
	}
	if d.invalid {
		return errUnreadable(r)
	}
	return nil
}

// decoder reads an encoded record.
type decoder struct {
	rest    []byte
	zeros   uint64 // that come before rest
	invalid bool
}

// next reads a number.
func (d *decoder) next() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.invalid, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// nextOrZero reads a number of a bucket.
func (d *decoder) nextOrZero(uint64) uint64 {
	switch {
	case d.zeros > 0:
		d.zeros--
		return 0
	case len(d.rest) == 0:
		return 0
	}
	n := d.next()
	if n == 0 && !d.invalid {
		d.zeros = d.next()
	}
	return n
}

// text reads so many bytes.
func (d *decoder) text(length uint64) []byte {
	if length > uint64(len(d.rest)) {
		d.invalid, d.rest = true, nil
		return nil
	}
	text := d.rest[:length]
	d.rest = d.rest[length:]
	return text
}

// former reads the numbers of a bucket of formerFormat.
func (d *decoder) former(name []byte, isWanted func([]byte) bool, fn func([]byte, *Bucket)) {
	if !isWanted(name) {
		d.invalid = !skipNumbers(&d.rest) || d.invalid
		return
	}
	var b Bucket
	b.each(func(uint64) uint64 { return d.next() })
	fn(name, &b)
}

// numbers is how many numbers a bucket has.
var numbers = func() (n int) {
	new(Bucket).each(func(uint64) uint64 { n++; return 0 })
	return n
}()

// skipNumbers passes over the numbers of a bucket. It reports whether they are all there.
func skipNumbers(rest *[]byte) bool {
	left := numbers
	for i, b := range *rest {
		if b >= 0x80 {
			continue // there is more of the number
		}
		if left--; left == 0 {
			*rest = (*rest)[i+1:]
			return true
		}
	}
	return false
}

func errUnreadable(r *job.Record) error {
	return &job.Error{Op: "series.read", Msg: "the stored step " + r.Key + " cannot be read"}
}
