package uuids_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/uuids"
)

func random() (r [16]byte) { _, _ = rand.Read(r[:]); return r }

func TestSource(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
	s := &uuids.Source{Now: func() time.Time { return at }, Random: random}
	var mu sync.Mutex
	var all []string
	var crowd sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			for range 500 {
				part := s.Next(3)
				if !slices.IsSorted(part) {
					t.Errorf("%v do not follow each other", part)
				}
				mu.Lock()
				all = append(all, part...)
				mu.Unlock()
			}
		})
	}
	crowd.Wait()
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Error("an id is there twice")
	}
	first := uuid.MustParse(all[0])
	if first.Version() != 7 || first.Variant() != uuid.RFC4122 {
		t.Errorf("%s is version %d", first, first.Version())
	}
	if sec, nsec := first.Time().UnixTime(); time.Unix(sec, nsec).UnixMilli() != at.UnixMilli() {
		t.Errorf("%s is of %s, want %s", first, time.Unix(sec, nsec).UTC(), at)
	}
}

func TestFloor(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := at
	s := &uuids.Source{Now: func() time.Time { return now }, Random: random}
	now = at.Add(-time.Millisecond)
	before := s.Next(1)[0]
	now = at
	after := s.Next(1)[0]
	if floor := uuids.LowerBound(at); before >= floor || after < floor {
		t.Errorf("%s does not part %s from %s", floor, before, after)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const id = "019ca945-0a00-7000-b23c-34f13da603ed"
	for text, want := range map[string]bool{id: true, strings.ToUpper(id): true,
		"{" + id + "}": false, "urn:uuid:" + id: false,
		strings.ReplaceAll(id, "-", ""): false, id[:35] + "g": false, "": false,
		strings.Repeat("x", 36): false} {
		if got, ok := uuids.Parse(text); ok != want || (ok && got != id) {
			t.Errorf("%q is read as %q, %t", text, got, ok)
		}
		if got, ok := uuids.Decode(text); ok != want || (ok && got.String() != id) {
			t.Errorf("%q is read as %s, %t", text, got, ok)
		}
	}
}
