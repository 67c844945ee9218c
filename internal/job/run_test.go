package job_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/job"
)

func random16(r *rand.Rand) (b [16]byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// A run id is a UUID of version 8 that contains the number of its job, up to 2^47 of them, and
// keeps 74 random bits.
func TestRunID(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	seqs := []int64{0, 1, 2, 255, 256, 1<<16 - 1, 1 << 16, 1<<32 - 1, 1 << 32, 1<<47 - 1, 1 << 47}
	for range 1000 {
		seqs = append(seqs, r.Int64N(1<<47))
	}
	for _, seq := range seqs {
		random := random16(r)
		id := job.NewRunID(seq, random)
		if id.Seq() != seq || id.IsZero() {
			t.Fatalf("run %s of %d says %d", id, seq, id.Seq())
		}
		u, err := uuid.Parse(id.String())
		if err != nil || u != uuid.UUID(id) || u.Version() != 8 || u.Variant() != uuid.RFC4122 ||
			u.String() != id.String() {
			t.Fatalf("%s: %v, version %d, variant %s", id, err, u.Version(), u.Variant())
		}
		for i := 6; i < 16; i++ {
			mask := byte(0xff)
			switch i {
			case 6:
				mask = 0x0f
			case 8:
				mask = 0x3f
			}
			if id[i]&mask != random[i]&mask {
				t.Fatalf("%s has lost random bits of %x", id, random)
			}
		}
		for _, text := range []string{id.String(), strings.ToUpper(id.String())} {
			if back, err := job.ParseRunID(text); err != nil || back != id {
				t.Fatalf("%s read back as %s, %v", text, back, err)
			}
		}
	}
	if !(job.RunID{}).IsZero() || (job.RunID{}).Seq() != 0 {
		t.Error("the zero run is none")
	}
}

// Run ids are stored and named by workers across restarts and upgrades.
func TestRunIDIsStable(t *testing.T) {
	t.Parallel()
	id := job.NewRunID(0x123456789abc, [16]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0xff,
		2, 3, 4, 5, 6, 7, 8})
	if got, want := id.String(), "12345678-9abc-8f01-bf02-030405060708"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseRunIDRefuses(t *testing.T) {
	t.Parallel()
	good := "12345678-9abc-8f01-bf02-030405060708"
	for _, text := range []string{"", "x", good[1:], good + "0", " " + good[1:], "{" + good + "}",
		"urn:uuid:" + good, strings.ReplaceAll(good, "-", ""),
		strings.Replace(good, "-", "_", 1), strings.Replace(good, "1", "g", 1),
		strings.Replace(good, "1", "\x00", 1), "1234567-89abc-8f01-bf02-030405060708",
		strings.Repeat("-", 36), strings.Repeat("é", 18), good[:35] + "é"} {
		if id, err := job.ParseRunID(text); err == nil || !id.IsZero() {
			t.Errorf("%q was read as %s", text, id)
		}
	}
}

func FuzzParseRunID(f *testing.F) {
	f.Add("12345678-9abc-8f01-bf02-030405060708")
	f.Add("12345678-9ABC-8F01-BF02-03040506070")
	f.Add(strings.Repeat("-", 36))
	f.Fuzz(func(t *testing.T, text string) {
		id, err := job.ParseRunID(text)
		if err != nil {
			if !id.IsZero() {
				t.Fatalf("%q: %s beside %v", text, id, err)
			}
			return
		}
		if id.String() != strings.ToLower(text) {
			t.Fatalf("%q was read as %s", text, id)
		}
		if u, err := uuid.Parse(text); err != nil || u != uuid.UUID(id) {
			t.Fatalf("%q is %s to others: %v", text, u, err)
		}
		id.Seq()
	})
}
