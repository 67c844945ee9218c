package images_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/internal/contract/images"
)

// FuzzProposedJob: what stands in the queue of messages, where others may write too, proposes a job
// with an id in its one form, or none.
func FuzzProposedJob(f *testing.F) {
	for _, text := range []string{`{}`, `null`, `[]`, `{"jobId":1}`, `{"jobId":""}`, "\xff", "",
		`{"jobId":"01890000-0000-7000-8000-000000000000","type":"process_file","x":[]}`,
		`{"JOBID":"01890000-0000-7000-8000-00000000000A"}`, `{"jobId":"{01890000}"}`,
		`{"jobId":"urn:uuid:01890000-0000-7000-8000-000000000000"}`,
		`{"jobId":"018900000000700080000000000000000"}`, `{"jobId":"\u0000"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		id, ok := images.ProposedJob(text)
		if !ok {
			return
		}
		again, ok := images.ProposedJob([]byte(`{"jobId":"` + id.Key + `"}`))
		if !ok || again != id || len(id.Key) != 36 || !json.Valid(text) {
			t.Fatalf("%q proposes %q, which proposes %q", text, id.Key, again.Key)
		}
	})
}
