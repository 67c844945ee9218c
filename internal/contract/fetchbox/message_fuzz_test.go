package fetchbox_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
)

// FuzzMessage: what stands on a stream, where anybody with its token may publish, is a task that
// stays the same when it is written again, or is kept as JSON in a dead letter.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{`{}`, `null`, `[]`, `{"job_id":"01890000-0000-7000-8000-000000000000",
		"resource_id":"r","url":"http://a","headers":{"a":"b"},"attempt":1}`, `{"task":{"job_id":1}}`,
		`{"task":{"job_id":"x","resource_id":"y"},"failed_at":"2031-01-01T00:00:00Z"}`,
		`{"failed_at":"9999-99-99"}`, "\xff", "\x00", `{"attempt":1e400}`, `{"job_id":"\ud800"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if task, err := fetchbox.DecodeTask(text); err == nil {
			again, err := fetchbox.DecodeTask(fetchbox.EncodeTask(&task))
			if err != nil || !reflect.DeepEqual(again, task) {
				t.Fatalf("%q is %+v, then %+v, %v", text, task, again, err)
			}
		}
		if kept := fetchbox.InvalidTask(text); !json.Valid(kept) {
			t.Fatalf("%q is kept as %q", text, kept)
		}
		fetchbox.DeadLetterTask(text)
		fetchbox.FailedAt(text)
	})
}
