package admin

import (
	"encoding/json"
	"fmt"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// readBody reads a record and decodes its body. It returns nil if there is none. A body that cannot
// be read is a defect or damaged data.
func readBody[T any](r engine.RecordReader, kind, key string) (*T, error) {
	record, err := r.Record(kind, key)
	if err != nil || record == nil {
		return nil, err
	}
	body := new(T)
	if err := json.Unmarshal(record.Body, body); err != nil {
		return nil, &job.Error{Op: "admin.read", Msg: "a stored record cannot be read",
			Err: fmt.Errorf("%s: %w", kind, err)}
	}
	return body, nil
}

// putBody stores a record with a body.
func putBody(w engine.RecordWriter, r job.Record, body any) error {
	var err error
	if r.Body, err = json.Marshal(body); err != nil {
		return err
	}
	return w.UpsertRecords(r)
}
