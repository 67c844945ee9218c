package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

func TestRead(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		var all []stream.Message
		for i := range 30 {
			all = append(all, stream.Message{Subject: fmt.Sprint("logs.", i%3),
				Data: fmt.Append(nil, i)})
		}
		w.mustPublish(t, all...)
		for _, tt := range []struct {
			subject string
			from    uint64
			limit   int
			want    []string
		}{
			{"logs.1", 0, 3, []string{"1", "4", "7"}},
			{"logs.1", 8, 2, []string{"7", "10"}},
			{"logs.1", 9, 2, []string{"10", "13"}},
			{"logs.1", 26, 100, []string{"25", "28"}},
			{"logs.1", 30, 1, nil},
			{"logs.1", 1 << 60, 10, nil},
			{"logs.none", 0, 10, nil},
			{"logs.*", 29, 10, []string{"28", "29"}},
		} {
			if got := dataOf(w.mustRead(t, "LOGS", tt.subject, tt.from,
				tt.limit)); !slices.Equal(got, tt.want) {
				t.Errorf("%s from %d, %d of them: got %v, want %v", tt.subject, tt.from, tt.limit,
					got, tt.want)
			}
		}
		if first, err := w.First(t.Context(), "LOGS", "logs.2"); first != 3 || err != nil {
			t.Errorf("got %d, %v", first, err)
		}
		if _, err := w.First(t.Context(), "LOGS", "logs.none"); !job.IsKind(err, job.NotFound) {
			t.Errorf("got %v", err)
		}
		if e, err := w.Get(t.Context(), "LOGS", 30); err != nil || string(e.Data) != "29" ||
			e.Subject != "logs.2" || e.Offset != 30 {
			t.Errorf("got %+v, %v", e, err)
		}
		for _, offset := range []uint64{0, 31, 1 << 62} {
			if e, err := w.Get(t.Context(), "LOGS", offset); !job.IsKind(err, job.NotFound) {
				t.Errorf("%d: got %+v, %v", offset, e, err)
			}
		}
		if err := w.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestReadLarge reads more than one answer of the server holds.
func TestReadLarge(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		large := make([]stream.Message, 30)
		for i := range large {
			large[i] = stream.Message{Subject: "logs.large", Data: make([]byte, 900<<10)}
			large[i].Data[0] = byte(i)
		}
		w.mustPublish(t, large...)
		got := w.mustRead(t, "LOGS", "logs.large", 0, 100)
		for i, e := range got {
			if e.Data[0] != byte(i) || len(e.Data) != 900<<10 {
				t.Errorf("entry %d begins with %d", i, e.Data[0])
			}
		}
		if len(got) != len(large) {
			t.Errorf("got %d entries", len(got))
		}
	})
}

func TestNewest(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		if got, err := w.Newest(t.Context(), "DEAD", "dead", 0, 5); err != nil || len(got) != 0 {
			t.Errorf("of nothing: got %v, %v", dataOf(got), err)
		}
		w.mustPublish(t, newMessages("dead", "", 50)...)
		dead, err := w.js.Stream(t.Context(), "DEAD")
		if err != nil {
			t.Fatal(err)
		}
		for offset := uint64(10); offset <= 44; offset++ { // a gap: messages 9 to 43
			if err := dead.DeleteMsg(t.Context(), offset); err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct {
			before uint64
			limit  int
			want   []string
		}{
			{0, 3, []string{"49", "48", "47"}},
			{48, 2, []string{"46", "45"}},
			{0, 9, []string{"49", "48", "47", "46", "45", "44", "8", "7", "6"}},
			{30, 2, []string{"8", "7"}},
			{3, 10, []string{"1", "0"}},
			{1, 10, nil},
			{1 << 60, 1, []string{"49"}},
		} {
			got, err := w.Newest(t.Context(), "DEAD", "dead", tt.before, tt.limit)
			if err != nil || !slices.Equal(dataOf(got), tt.want) {
				t.Errorf("%d before %d: got %v, want %v (%v)", tt.limit, tt.before, dataOf(got),
					tt.want, err)
			}
		}
	})
}

func TestFollow(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		w.mustPublish(t, newMessages("logs.f", "old", 3)...)
		w.mustPublish(t, newMessages("logs.g", "other", 1)...)
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		err := w.Follow(ctx, "LOGS", "logs.f", 2, func(e stream.Entry) error {
			switch got = append(got, string(e.Data)); len(got) {
			case 2: // what was there has been seen
				w.mustPublish(t, newMessages("logs.g", "more", 1)...)
				w.mustPublish(t, newMessages("logs.f", "new", 2)...)
			case 4:
				cancel()
			}
			return nil
		})
		if want := []string{"old1", "old2", "new0", "new1"}; err != nil ||
			!slices.Equal(got, want) {
			t.Errorf("got %v, want %v (%v)", got, want, err)
		}
		full := errors.New("full")
		if err := w.Follow(t.Context(), "LOGS", "logs.f", 0, func(stream.Entry) error {
			return full
		}); err != full {
			t.Errorf("got %v", err)
		}
	})
}
