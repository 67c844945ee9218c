package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// encodeSpecs encodes the body of Enqueue and Requeue. It does not use encoding/json, which
// compacts and escapes raw values: payloads and states must come back byte for byte (RL-009).
func encodeSpecs(jobs []RelaySpec) ([]byte, error) {
	body := []byte{'['}
	for i, job := range jobs {
		if i > 0 {
			body = append(body, ',')
		}
		var err error
		if body, err = appendSpec(body, job); err != nil {
			return nil, fmt.Errorf("job %d: %w", i, err)
		}
	}
	return append(body, ']'), nil
}

func appendSpec(b []byte, job RelaySpec) ([]byte, error) {
	payload := job.Payload
	if payload == nil {
		payload = json.RawMessage("null")
	}
	if err := errors.Join(
		checkName("queue", job.Queue),
		checkName("id", job.ID),
		checkJSON("payload", payload),
	); err != nil {
		return nil, err
	}
	b = append(b, `{"queue":`...)
	b = appendString(b, job.Queue)
	b = append(b, `,"id":`...)
	b = appendString(b, job.ID)
	b = append(b, `,"timeout":`...)
	b = strconv.AppendInt(b, wholeSeconds(job.Timeout), 10)
	if job.MaxRetries != nil {
		b = append(b, `,"max_retries":`...)
		b = strconv.AppendInt(b, int64(*job.MaxRetries), 10)
	}
	if !job.RunAt.IsZero() {
		at, err := job.RunAt.UTC().MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("run_at: %w", err)
		}
		b = append(b, `,"run_at":`...)
		b = append(b, at...)
	}
	if job.State != nil {
		if err := checkJSON("state", job.State); err != nil {
			return nil, err
		}
		b = append(b, `,"state":`...)
		b = append(b, job.State...)
	}
	if job.CallbackURL != "" {
		b = appendString(append(b, `,"callback_url":`...), job.CallbackURL)
	}
	b = append(b, `,"payload":`...)
	b = append(b, payload...)
	return append(b, '}'), nil
}

func appendString(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string cannot fail
	return append(b, quoted...)
}

// checkJSON refuses a value that would break the JSON around it.
func checkJSON(what string, raw json.RawMessage) error {
	if !json.Valid(raw) {
		return fmt.Errorf("%s is not JSON", what)
	}
	return nil
}

// wholeSeconds rounds away from zero: a lease is never shorter than asked for, and a negative
// duration stays negative, for the server to refuse.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	switch rest := d % time.Second; {
	case rest > 0:
		seconds++
	case rest < 0:
		seconds--
	}
	return seconds
}

// relayWire is a job in an answer.
type relayWire struct {
	Queue            string          `json:"queue"`
	ID               string          `json:"id"`
	Timeout          int64           `json:"timeout"`
	MaxRetries       *int            `json:"max_retries"`
	RetriesRemaining *int            `json:"retries_remaining"`
	Payload          json.RawMessage `json:"payload"`
	State            json.RawMessage `json:"state"`
	RunID            *string         `json:"run_id"`
	RunAt            time.Time       `json:"run_at"`
	UpdatedAt        time.Time       `json:"updated_at"`
	CreatedAt        time.Time       `json:"created_at"`
	CallbackURL      string          `json:"callback_url"`
}

// job converts a job of an answer. A member that is missing counts as null (RL-083).
func (w relayWire) job() (RelayJob, error) {
	if w.Queue == "" || w.ID == "" {
		return RelayJob{}, errors.New("a job without queue or id")
	}
	if w.Timeout < 0 || w.Timeout > math.MaxInt64/int64(time.Second) {
		return RelayJob{}, fmt.Errorf("a timeout of %d seconds", w.Timeout)
	}
	job := RelayJob{
		RelaySpec: RelaySpec{
			Queue:      w.Queue,
			ID:         w.ID,
			Timeout:    time.Duration(w.Timeout) * time.Second,
			MaxRetries: w.MaxRetries,
			Payload:    w.Payload,
			State:      w.State,
			RunAt:      w.RunAt.UTC(),

			CallbackURL: w.CallbackURL,
		},
		RetriesRemaining: w.RetriesRemaining,
		UpdatedAt:        w.UpdatedAt.UTC(),
		CreatedAt:        w.CreatedAt.UTC(),
	}
	if string(w.State) == "null" {
		job.State = nil
	}
	if w.RunID != nil {
		job.RunID = *w.RunID
	}
	return job, nil
}

func decodeJob(body []byte) (RelayJob, error) {
	var wire relayWire
	if err := json.Unmarshal(body, &wire); err != nil {
		return RelayJob{}, err
	}
	return wire.job()
}

// decodeJobs reads claimed jobs, each of which must have a run id.
func decodeJobs(body []byte) ([]RelayJob, error) {
	var wires []relayWire
	if err := json.Unmarshal(body, &wires); err != nil {
		return nil, err
	}
	jobs := make([]RelayJob, 0, len(wires))
	for _, wire := range wires {
		job, err := wire.job()
		if err != nil {
			return nil, err
		}
		if job.RunID == "" {
			return nil, fmt.Errorf("claimed job %q has no run id", job.ID)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}
