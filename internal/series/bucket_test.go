package series

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// randomBuckets are buckets most of whose numbers are 0, as those of real queues.
func randomBuckets(random *rand.Rand, count int) buckets {
	all := buckets{}
	for i := range count {
		b := all.of(fmt.Sprint("queue ", i))
		b.eachStored(func(uint64) uint64 {
			if random.IntN(4) > 0 {
				return 0
			}
			return uint64(random.IntN(1 << random.IntN(31)))
		})
	}
	return all
}

// encodeFormer encodes buckets as it was done in formerFormat, and takes from them what that lacks.
func encodeFormer(all buckets) []byte {
	b := []byte{formerFormat}
	for name, bucket := range all {
		bucket.Wait.Longest, bucket.Run.Longest = 0, 0
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		bucket.each(func(n uint64) uint64 {
			b = binary.AppendUvarint(b, n)
			return n
		})
	}
	return b
}

// AD-060: what is stored is read as it was, also in the format of earlier versions, as a whole and
// by a name; what is cut is refused or has fewer buckets, and is never read as another one.
func TestEncodedBuckets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		want := randomBuckets(random, round%5)
		for _, encode := range []func(buckets) []byte{buckets.encode, encodeFormer} {
			body := encode(want)
			got, err := decode(&job.Record{Body: body}, "")
			if err != nil || !maps.EqualFunc(got, want, equalBuckets) {
				t.Fatalf("%x: got %v, %v", body, got, err)
			}
			for name := range want {
				one, err := decode(&job.Record{Body: body}, name)
				if err != nil || len(one) != 1 || *one[name] != *want[name] {
					t.Fatalf("%x: of %s %v, %v", body, name, one, err)
				}
			}
			for end := range body {
				cut, err := decode(&job.Record{Body: body[:end]}, "")
				for name, b := range cut {
					if err == nil && (want[name] == nil || *b != *want[name]) {
						t.Fatalf("%x cut to %d: %s is %v", body, end, name, b)
					}
				}
			}
		}
	}
	if _, err := decode(&job.Record{Body: []byte{9}}, ""); err == nil {
		t.Error("an unknown format is read")
	}
}

func equalBuckets(a, b *Bucket) bool { return *a == *b }

// Queues cost little in a record, also those that other queues are read past.
func TestSizeOfBuckets(t *testing.T) {
	t.Parallel()
	idle := buckets{"q": {Depth: 1000, Oldest: time.Minute}}
	if n := len(idle.encode()); n > 16 {
		t.Errorf("a queue with ready jobs alone has %d bytes", n)
	}
	busy := &Bucket{Activity: engine.Activity{Submitted: 1000, Started: 1000, Succeeded: 1000}}
	for i := range 3 {
		busy.Wait.Histogram[5+i], busy.Run.Histogram[8+i] = 300, 300
	}
	if n := len(buckets{"q": busy}.encode()); n > 40 {
		t.Errorf("a busy queue has %d bytes", n)
	}
}
