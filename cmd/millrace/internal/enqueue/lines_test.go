package enqueue

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestLineReader(t *testing.T) {
	t.Parallel()
	r := newLineReader(t.Context(), strings.NewReader("1\n\n2\r\n3\n4"),
		lineFormat{queue: "q", timeout: time.Second}, 2, 2)
	var lines []int
	var payloads string
	bytes := int64(0)
	for number := 0; ; number++ {
		b, err := r.next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || b.number != number || len(b.jobs) > 2 {
			t.Fatal(b, err)
		}
		lines = append(lines, b.lines...)
		bytes += b.bytes
		for _, j := range b.jobs {
			payloads += string(j.Payload) + " "
		}
	}
	if payloads != "2 3 4 " || len(lines) != 3 || lines[0] != 3 || lines[2] != 5 {
		t.Errorf("payloads %q of lines %v", payloads, lines)
	}
}

// FuzzParseLine: whatever the line, it is a job that JSON can carry or an error that says why.
func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{`{"queue":"q","id":"1","timeout":30,"payload":{"a":1}}`,
		`{"queue":"q","id":"1","timeout":1e1,"payload":null,"state":null,"max_retries":2,"run_at":"2026-01-01T00:00:00Z"}`,
		`{"id":7}`, `{"id":"x"}`, `{"id":null}`, `[`,
		`{"queue":"q","id":"1","timeout":1e99,"payload":1}`, "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, format := range []lineFormat{{}, {queue: "q"}, {queue: "q", idFrom: "id"}} {
			job, err := format.parse([]byte(line), 1)
			if err != nil {
				if err.Error() == "" {
					t.Error("an error without a word")
				}
				continue
			}
			if job.Queue == "" || job.ID == "" || !json.Valid(job.Payload) ||
				(job.State != nil && !json.Valid(job.State)) {
				t.Errorf("%q became %+v", line, job)
			}
			repeated, err := format.parse([]byte(line), 1)
			if err != nil || repeated.ID != job.ID {
				t.Errorf("%q has id %q, and then %q", line, job.ID, repeated.ID)
			}
		}
	})
}
