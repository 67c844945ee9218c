package relay

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// The forms of a job on the wire. A submitted job is decoded into the engine's words, and a job of
// the engine is written in the form of the version that was asked for:
//
//	member             engine
//	queue, id          ID.Scope, ID.Key
//	timeout            Lease, in whole seconds
//	max_retries        MaxAttempts − 1; null: MaxAttempts is 0, no limit
//	retries_remaining  MaxAttempts − 1 − FailedAttempts
//	payload, state     Payload, Progress, byte for byte
//	run_at             OrderTime and DueAt
//	run_id             Run, null while the job is queued
//	callback_url       Callback; there is none without the member, and in version 1

// version is the version of the API in which a job is sent.
type version int

const (
	v2 version = iota
	v1         // payload may be missing; wire_v1.go has the other differences
)

// null is the JSON value of a member that is not set. It must not be changed.
var null = []byte("null")

// appendJob writes a job in the form of version 2, with the members in the document's order.
// Members without a value are null and not left out (RL-083). FailedAttempts counts timeouts alone
// (RL-092).
func appendJob(b []byte, j *job.Job) []byte {
	b = append(b, `{"queue":`...)
	b = strictjson.AppendString(b, j.ID.Scope)
	b = append(b, `,"id":`...)
	b = strictjson.AppendString(b, j.ID.Key)
	b = append(b, `,"timeout":`...)
	b = strconv.AppendInt(b, int64(j.Lease/time.Second), 10)
	if j.MaxAttempts == 0 {
		b = append(b, `,"max_retries":null,"retries_remaining":null`...)
	} else {
		b = append(b, `,"max_retries":`...)
		b = strconv.AppendInt(b, int64(j.MaxAttempts-1), 10)
		b = append(b, `,"retries_remaining":`...)
		b = strconv.AppendInt(b, int64(max(0, j.MaxAttempts-1-j.FailedAttempts)), 10)
	}
	b = appendBodies(b, j)
	b = append(b, `,"run_id":`...)
	b = appendRun(b, j.Run)
	b = appendTimes(b, j)
	b = append(b, `,"created_at":`...)
	b = strictjson.AppendTime(b, j.CreatedAt)
	b = appendCallback(b, j)
	return append(b, '}')
}

// appendJobV1 writes a job in the form of version 1, which has no run_id, created_at and
// retries_remaining, and −1 for no limit of retries (G-RL-29).
func appendJobV1(b []byte, j *job.Job) []byte {
	b = append(b, `{"id":`...)
	b = strictjson.AppendString(b, j.ID.Key)
	b = append(b, `,"queue":`...)
	b = strictjson.AppendString(b, j.ID.Scope)
	b = append(b, `,"timeout":`...)
	b = strconv.AppendInt(b, int64(j.Lease/time.Second), 10)
	b = append(b, `,"max_retries":`...)
	b = strconv.AppendInt(b, int64(j.MaxAttempts-1), 10) // -1 without a limit
	b = appendBodies(b, j)
	b = appendTimes(b, j)
	return append(b, '}')
}

func appendBodies(b []byte, j *job.Job) []byte {
	b = append(b, `,"payload":`...)
	b = appendRaw(b, j.Payload)
	b = append(b, `,"state":`...)
	return appendRaw(b, j.Progress)
}

func appendTimes(b []byte, j *job.Job) []byte {
	b = append(b, `,"run_at":`...)
	b = strictjson.AppendTime(b, j.OrderTime)
	b = append(b, `,"updated_at":`...)
	return strictjson.AppendTime(b, j.UpdatedAt)
}

// appendRaw writes JSON unchanged, and null for nil.
func appendRaw(b, raw []byte) []byte {
	if raw == nil {
		raw = null
	}
	return append(b, raw...)
}

// appendRun writes a run id as a UUID in lower case, and null for none (RL-010).
func appendRun(b []byte, r job.RunID) []byte {
	if r.IsZero() {
		return append(b, null...)
	}
	b = append(b, '"')
	b = hex.AppendEncode(b, r[:4])
	for _, part := range [...][]byte{r[4:6], r[6:8], r[8:10], r[10:]} {
		b = append(b, '-')
		b = hex.AppendEncode(b, part)
	}
	return append(b, '"')
}

// buffers holds the buffers of answers that have been sent. Answers to polls are many and of
// similar size, so a buffer fits the next one.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxPooledBuffer is the largest buffer that is kept for another answer. A larger one, of a job
// with a large payload, is left to the garbage collector.
const maxPooledBuffer = 256 << 10

func sendJobs(c *httpapi.Call, jobs []*job.Job, write func([]byte, *job.Job) []byte) {
	send(c, func(b []byte) []byte {
		b = append(b, '[')
		for i, j := range jobs {
			if i > 0 {
				b = append(b, ',')
			}
			b = write(b, j)
		}
		return append(b, ']')
	})
}

func sendJob(c *httpapi.Call, j *job.Job, write func([]byte, *job.Job) []byte) {
	send(c, func(b []byte) []byte { return write(b, j) })
}

// send answers 200 with the JSON that write appends to a buffer. The buffer is used again as soon
// as Send has returned.
func send(c *httpapi.Call, write func([]byte) []byte) {
	p := buffers.Get().(*[]byte)
	b := write((*p)[:0])
	c.Send(http.StatusOK, httpapi.JSON, b)
	if cap(b) <= maxPooledBuffer {
		*p = b
		buffers.Put(p)
	}
}
