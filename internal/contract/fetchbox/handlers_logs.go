package fetchbox

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

// The log of a job is the messages on its subject of JOBS_LOGS. A request reads it from an offset
// on. Of these the first one that is given counts:
//
//	Last-Event-ID + 1     an EventSource that reconnects
//	since_offset          inclusive (FB-061)
//	the stored cursor     the first entry of the job (FB-060)
//
// Without follow the answer ends at the present end of the log. With follow it continues with new
// entries until the limit is reached, the caller has gone or the node stops. Every entry has its
// offset, in either form, so a caller can continue without gaps and repeats:
//
//	application/x-ndjson   {"job_id":…,"offset":17}
//	text/event-stream      id: 17
//	                       data: {"job_id":…,"offset":17}

const maxLogEntries = 1000 // of one answer (G-FB-21)

// The two forms of a log.
var (
	ndjson = []string{"application/x-ndjson"}
	sse    = []string{"text/event-stream"}
)

// lastEventHeader is Last-Event-ID, as http.Header spells it.
const lastEventHeader = "Last-Event-Id"

// logQuery selects the entries of a log and their form.
type logQuery struct {
	since         uint64
	explicitStart bool // the caller sent since_offset or Last-Event-ID
	limit         int  // 0 is no limit, the default of follow
	follow        bool
	events        bool // as server-sent events
}

// readLogQuery reads the parameters and headers that select a part of a log. Its errors are of the
// kinds Malformed and Invalid (FB-063). An offset is a number of up to 63 bits.
func readLogQuery(c *httpapi.Call) (q logQuery, err error) {
	text, given, err := c.Query("since_offset")
	if err != nil {
		return q, err
	}
	if q.explicitStart = given; given {
		if q.since, err = strconv.ParseUint(text, 10, 63); err != nil {
			return q, invalid("since_offset must be a whole number of 0 or more")
		}
	}
	if text, given, err = c.Query("follow"); err != nil {
		return q, err
	}
	if q.follow = text == "true"; given && !q.follow && text != "false" {
		return q, invalid("follow must be true or false")
	}
	defaultLimit := maxLogEntries
	if q.follow {
		defaultLimit = 0
	}
	if text, given, err = c.Query("limit"); err != nil {
		return q, err
	}
	if q.limit = defaultLimit; given {
		n, ok := httpapi.ParseDigits(text)
		if q.limit = n; !ok || n < 1 || n > maxLogEntries {
			return q, invalid(limitText, maxLogEntries)
		}
	}
	if q.events = wantsEvents(c.Request.Header["Accept"]); !q.events {
		return q, nil
	}
	return q, q.resume(c)
}

// resume continues after the event of Last-Event-ID. It takes precedence over since_offset, as an
// EventSource that reconnects repeats the same URL (G-FB-21).
func (q *logQuery) resume(c *httpapi.Call) error {
	text, err := readHeader(c, lastEventHeader)
	if err != nil || text == "" {
		return err
	}
	last, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return invalid("Last-Event-ID must be the id of an event, a whole number of 0 or more")
	}
	q.since, q.explicitStart = last+1, true
	return nil
}

// wantsEvents reports whether Accept asks for server-sent events.
func wantsEvents(accept []string) bool {
	for _, line := range accept {
		for entry := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(entry, ";")
			if strings.EqualFold(strings.TrimSpace(kind), sse[0]) {
				return true
			}
		}
	}
	return false
}

// GET /operators/jobs/{job_id}/logs: the entries of a job's log in the order of their offsets
// (FB-059). Only the subject of this job is read, so no entry of another one can appear (FB-062).
func (f *FetchBox) logs(c *httpapi.Call) error {
	j, err := f.findJob(c.Context(), c.PathValue("job_id"))
	if err != nil {
		return err
	}
	q, err := readLogQuery(c)
	if err != nil {
		return err
	}
	if !q.explicitStart {
		if q.since, err = f.logStart(c.Context(), j); err != nil {
			return err
		}
	}
	if q.follow {
		return f.followLog(c, j.ID.Key, &q)
	}
	entries, err := f.Streams.Read(c.Context(), logsStream, logSubject(j.ID.Key), q.since,
		q.limit)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for i := range entries {
		q.write(&b, &entries[i])
	}
	c.Send(http.StatusOK, q.contentType(), b.Bytes())
	return nil
}

// logStart is the offset where the log of a job begins: the stored cursor (FB-060). If the stream
// was created again since, that offset holds something else or nothing, and the log begins with
// the first entry there is.
func (f *FetchBox) logStart(ctx context.Context, j *job.Job) (uint64, error) {
	cursor := decodeJobDetails(j).cursor
	first, err := f.Streams.Get(ctx, logsStream, cursor)
	if job.IsKind(err, job.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if first.Subject != logSubject(j.ID.Key) {
		return 0, nil
	}
	return cursor, nil
}

// logEntries returns the first entries of a job's log for its timeline.
func (f *FetchBox) logEntries(ctx context.Context, j *job.Job) ([]job.Entry, error) {
	since, err := f.logStart(ctx, j)
	if err != nil {
		return nil, err
	}
	lines, err := f.Streams.Read(ctx, logsStream, logSubject(j.ID.Key), since, job.MaxEntries+1)
	if err != nil {
		return nil, err
	}
	all := make([]job.Entry, len(lines))
	for i := range lines {
		all[i] = job.Entry{Kind: job.EntryLog}
		resource, fields := "", ""
		for name, value := range strictjson.Members(lines[i].Data) {
			switch string(name) {
			case "timestamp_ms":
				ms, _ := strictjson.Int(value, 64)
				all[i].At = time.UnixMilli(ms).UTC()
			case "message":
				all[i].Text, _ = strictjson.String(value)
			case "resource_id":
				resource, _ = strictjson.String(value)
			case "fields":
				fields = string(value)
			}
		}
		if resource != "" {
			all[i].Text = resource + ": " + all[i].Text
		}
		if fields != "{}" {
			all[i].Text += " " + fields
		}
	}
	return all, nil
}

// contentType is the header value of the form that the caller has asked for.
func (q *logQuery) contentType() []string {
	if q.events {
		return sse
	}
	return ndjson
}

// write appends an entry with its offset, which is also the id of a server-sent event.
func (q *logQuery) write(b *bytes.Buffer, e *stream.Entry) {
	offset := strconv.FormatUint(e.Offset, 10)
	if q.events {
		b.WriteString("id: " + offset + "\ndata: ")
	}
	b.Write(bytes.TrimSuffix(e.Data, []byte("}")))
	b.WriteString(`,"offset":` + offset + "}\n")
	if q.events {
		b.WriteByte('\n')
	}
}

// errLimitReached ends Follow at the limit, or when the caller has gone.
var errLimitReached = errors.New("the limit is reached or the caller has gone")

// followLog sends the entries of a log, and new ones as they are written, until the limit is
// reached, the caller has gone or the node stops. The header is sent at once, before there is an
// entry, so that the caller sees that the request was accepted. An error after that cuts the
// connection, as no status can follow.
func (f *FetchBox) followLog(c *httpapi.Call, jobID string, q *logQuery) error {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	defer context.AfterFunc(f.followCtx, cancel)()
	c.Header()["Content-Type"] = q.contentType()
	if err := c.Stream(nil); err != nil {
		return nil // the caller has gone
	}
	sent := 0
	err := f.Streams.Follow(ctx, logsStream, logSubject(jobID), q.since,
		func(e stream.Entry) error {
			var b bytes.Buffer
			q.write(&b, &e)
			if sent++; c.Stream(b.Bytes()) != nil || sent == q.limit {
				return errLimitReached
			}
			return nil
		})
	if errors.Is(err, errLimitReached) || job.IsKind(err, job.Aborted) {
		return nil
	}
	return err
}
