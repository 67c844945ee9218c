package bulk

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// A mark says that an operation has acted on an item. It is a record of the item's number, written
// in the transaction of the action and deleted by the commit that counts it; by then the cursor has
// passed the item, which says the same. So at any time the mark or the cursor says whether an item
// was acted on.

// mark writes the mark of an action in the transaction of the action. The transaction is undone if
// there is a mark already, or if the batch or the operation is done. Another node that carries out
// the same action at the same time waits for the end of this transaction, and then finds the mark,
// or a cursor behind it.
func (b *Bulk) mark(w engine.RecordWriter, o *Operation, number, made int64, slot int) error {
	key := markKey(o.ID, number)
	if err := errors.Join(w.Lock(slotLock(o.ID, slot)), w.Lock(key)); err != nil {
		return err
	}
	existing, err := w.Record(markKind, key)
	if err != nil {
		return err
	}
	if err := b.mayMark(w, o, number); err != nil {
		return err
	}
	if existing != nil {
		return errAlreadyDone
	}
	return writeMarks(w, o, mark{number, made})
}

// mayMark refuses a mark where the batch or the operation is done.
func (b *Bulk) mayMark(w engine.RecordWriter, o *Operation, number int64) error {
	now, err := read(w, o.ID)
	switch {
	case err != nil:
		return err
	case now == nil || now.State != Running:
		return errStopped
	case now.Cursor >= number:
		return errAlreadyDone
	}
	return nil
}

// writeMarks stores marks.
func writeMarks(w engine.RecordWriter, o *Operation, marks ...mark) error {
	records := make([]job.Record, len(marks))
	for i, m := range marks {
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		records[i] = job.Record{Kind: markKind, Key: markKey(o.ID, m.Number), Owner: o.ID,
			Body: body, ExpiresAt: w.Now().Add(retention)}
	}
	return w.UpsertRecords(records...)
}

// decodeMarks returns the marks that records hold.
func decodeMarks(records []job.Record) ([]mark, error) {
	marks := make([]mark, len(records))
	for i := range records {
		if err := json.Unmarshal(records[i].Body, &marks[i]); err != nil {
			return nil, &job.Error{Op: "bulk", Msg: "a stored mark cannot be read", Err: err}
		}
	}
	return marks, nil
}

// slotLock is the name that an action locks in its transaction before it reads whether the
// operation runs.
func slotLock(id string, slot int) string { return fmt.Sprintf("bulk:%s/%d", id, slot) }
