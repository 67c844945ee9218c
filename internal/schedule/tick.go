package schedule

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Outcome is what came of a time.
type Outcome string

// The outcomes.
const (
	Submitted Outcome = "submitted" // a job was submitted
	Skipped   Outcome = "skipped"   // the job of an earlier time was not done
	Missed    Outcome = "missed"    // it could not be submitted, or passed in a downtime
)

// MissedEvent is the type of the event about a time that was missed.
const MissedEvent = "schedule.missed"

// Tick is what was done about a time of a schedule (SC-006).
type Tick struct {
	Count   int64     `json:"count"` // of all ticks before it
	Time    time.Time `json:"time"`
	At      time.Time `json:"at"` // when it was done
	Outcome Outcome   `json:"outcome"`
	// Job is the number of the job that was submitted, 0 for none.
	Job int64 `json:"job,omitempty"`
	// Lateness is how long after Time and its jitter it was done.
	Lateness time.Duration `json:"lateness"`
	// Passed is how many earlier times this one stands for, of which none has a tick.
	Passed int    `json:"passed,omitempty"`
	Error  string `json:"error,omitempty"`
}

const (
	// tickKind is the kind of the records of ticks. Their owner is the name of the schedule.
	tickKind = "schedule_tick"
	// maxTicks is how many ticks of a schedule are kept.
	maxTicks = 100
)

// tickKey is the key of the record of a tick: a place in the ring of its schedule.
func tickKey(name string, count int64) string {
	return fmt.Sprintf("%s/%02d", name, count%maxTicks)
}

// tickKeys are the keys of the whole ring of a schedule.
func tickKeys(name string) []string {
	keys := make([]string, maxTicks)
	for i := range keys {
		keys[i] = tickKey(name, int64(i))
	}
	return keys
}

// record returns the record of a tick.
func (t *Tick) record(name string) job.Record {
	body, _ := json.Marshal(t) // it has no member that cannot be encoded
	return job.Record{Kind: tickKind, Key: tickKey(name, t.Count), Owner: name, Body: body}
}

// decodeTick reads a tick from its record.
func decodeTick(r *job.Record) (*Tick, error) {
	t := new(Tick)
	if err := json.Unmarshal(r.Body, t); err != nil {
		return nil, &job.Error{Op: "schedule.tick", Msg: "a stored tick cannot be read", Err: err}
	}
	return t, nil
}
