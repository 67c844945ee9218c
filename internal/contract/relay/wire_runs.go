package relay

import (
	"errors"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// runEntry is one entry of a request about several runs. Of a repeated member the last one counts
// (G-RL-26), and unknown ones are ignored (RL-015).
type runEntry struct {
	run   engine.Run
	state []byte // of a heartbeat; nil keeps that of the job (G-RL-05)
	// failure and failureType say that the run has failed; nil for a heartbeat without one.
	failure, failureType []byte

	// id and runID are the members as they were sent, for the answer. They keep the body in
	// memory.
	id, runID []byte
}

// readRuns reads a body that is an array of runs.
func readRuns(c *httpapi.Call) ([]runEntry, error) {
	body, err := c.JSONBody()
	if err != nil {
		return nil, err
	}
	return decodeRuns(body)
}

// decodeRuns reads an array of runs by the rules of decodeBatch.
func decodeRuns(body []byte) ([]runEntry, error) {
	// As that of decodeJobs, the capacity is a guess.
	const smallEntry = 96 // bytes
	entries := make([]runEntry, 0, min(1+len(body)/smallEntry, 1000))
	queue := ""
	err := decodeBatch(body, "run", func(raw []byte) error {
		entry, err := decodeRun(raw, queue)
		entries = append(entries, entry)
		queue = entry.run.ID.Scope
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// decodeRun reads one run of a text that is valid JSON. Queue and id have the limits that they have
// in an enqueued job (G-RL-14, G-RL-27). lastQueue is the queue of the entry before it.
func decodeRun(raw []byte, lastQueue string) (entry runEntry, err error) {
	if kind := strictjson.KindOf(raw); kind != strictjson.KindObject {
		return entry, malformed("a run must be an object and this is of type %s", kind)
	}
	var queue []byte
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "queue":
			queue = value
		case "id":
			entry.id = value
		case "run_id":
			entry.runID = value
		case "state":
			entry.state = value
		case "error":
			entry.failure = value
		case "error_type":
			entry.failureType = value
		}
	}
	id := job.ID{JobType: Name}
	var queueErr, idErr, runErr error
	id.Scope, queueErr = readName("queue", queue, lastQueue)
	id.Key, idErr = readName("id", entry.id, "")
	entry.run.ID = id
	entry.run.Run, runErr = readRunID(entry.runID)
	return entry, gravest(queueErr, idErr, runErr)
}

// readRunID reads a run id. One that is no UUID is malformed, as it is in a path (RL-096).
func readRunID(raw []byte) (run job.RunID, err error) {
	if raw == nil {
		return run, malformed("run_id is missing")
	}
	text, err := strictjson.Bytes(raw)
	if errors.Is(err, strictjson.ErrKind) {
		return run, malformed("run_id must be a string")
	}
	// A text that is not Unicode is no UUID either.
	if run, err = job.ParseRunID(text); err != nil {
		return run, malformed("run_id is not a UUID")
	}
	return run, nil
}

// The limits of the error of a heartbeat. What is beyond is cut, as no error may keep a worker from
// reporting it (G-RL-37).
const (
	maxError     = 16 << 10 // bytes
	maxErrorType = 255
)

// readFailure returns why a run has failed, as its worker reports it with a heartbeat; nil for a
// heartbeat of one that goes on. An error that is empty is none.
func (e *runEntry) readFailure() (*job.AttemptFailure, error) {
	message, err := readErrorText("error", e.failure, maxError)
	if err != nil {
		return nil, err
	}
	errorType, err := readErrorText("error_type", e.failureType, maxErrorType)
	if err != nil || message == "" {
		return nil, err
	}
	return &job.AttemptFailure{Error: message, Type: errorType}, nil
}

// readErrorText reads a text, which is cut and made storable; null is none.
func readErrorText(name string, raw []byte, limit int) (string, error) {
	if raw == nil || strictjson.IsNull(raw) {
		return "", nil
	}
	text, err := strictjson.String(raw)
	if errors.Is(err, strictjson.ErrKind) {
		return "", malformed("%s must be a string", name)
	}
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return strings.ReplaceAll(text, "\x00", "\uFFFD"), nil
}

// sendRuns answers with an entry for each run of a request, in its order. known says whether the
// run was its job's current one.
func sendRuns(c *httpapi.Call, entries []runEntry, known []bool) {
	send(c, func(b []byte) []byte {
		b = append(b, '[')
		for i := range entries {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, `{"id":`...), entries[i].id...)
			b = append(append(b, `,"run_id":`...), entries[i].runID...)
			b = strconv.AppendBool(append(b, `,"known":`...), known[i])
			b = append(b, '}')
		}
		return append(b, ']')
	})
}
