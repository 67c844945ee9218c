package fetchbox

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

const maxLogEntries = 1000 // of one answer (G-FB-21)

// The two forms of a log.
var (
	ndjson = []string{"application/x-ndjson"}
	sse    = []string{"text/event-stream"}
)

// lastEventHeader is Last-Event-ID, as http.Header spells it.
const lastEventHeader = "Last-Event-Id"

// logQuery is what of a log is asked for.
type logQuery struct {
	since         uint64
	explicitStart bool // the caller says since, or which event was its last
	limit         int  // 0 is none: of a log that is followed and whose limit nobody set
	follow        bool
	events        bool // as server-sent events
}

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
	usual := maxLogEntries
	if q.follow {
		usual = 0
	}
	if q.limit, err = readNumber(c, "limit", usual, 1, maxLogEntries); err != nil {
		return q, err
	}
	if q.events = wantsEvents(c.Request.Header["Accept"]); q.events {
		err = q.resume(c)
	}
	return q, err
}

// resume begins behind the last event that the caller has seen. It is newer than since_offset: an
// EventSource that connects again asks for the same URL (G-FB-21).
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

// GET /operators/jobs/{job_id}/logs
func (f *FetchBox) logs(c *httpapi.Call) error {
	j, err := f.findJob(c.Request.Context(), c.PathValue("job_id"))
	if err != nil {
		return err
	}
	q, err := readLogQuery(c)
	if err != nil {
		return err
	}
	if !q.explicitStart {
		if q.since, err = f.logStart(c.Request.Context(), j); err != nil {
			return err
		}
	}
	if q.follow {
		return f.followLog(c, j.ID.Key, &q)
	}
	entries, err := f.Streams.Read(c.Request.Context(), logsStream, logSubject(j.ID.Key), q.since,
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

// logStart is where the log of a job begins: at the stored cursor (FB-060). Where the stream was
// made anew something else may stand there, or nothing yet; then it is the first entry there is.
func (f *FetchBox) logStart(ctx context.Context, j *job.Job) (uint64, error) {
	cursor := decodeJobDetails(j).cursor
	first, err := f.Streams.Get(ctx, logsStream, cursor)
	switch {
	case err == nil && first.Subject == logSubject(j.ID.Key):
		return cursor, nil
	case err == nil || job.IsKind(err, job.NotFound):
		return 0, nil
	}
	return 0, err
}

func (q *logQuery) contentType() []string {
	if q.events {
		return sse
	}
	return ndjson
}

// write appends an entry with its offset, which is also the id of an event.
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

// errLimitReached ends a log that has been followed to its limit, or that nobody reads any more.
var errLimitReached = errors.New("no more entries are wanted")

// followLog sends what there is and then each entry as it comes, until the caller leaves, the node
// stops, or as many as were asked for are sent.
func (f *FetchBox) followLog(c *httpapi.Call, jobID string, q *logQuery) error {
	ctx, cancel := context.WithCancel(c.Request.Context())
	defer cancel()
	defer context.AfterFunc(f.followCtx, cancel)()
	c.Header()["Content-Type"] = q.contentType()
	if err := c.Stream(nil); err != nil {
		return nil // nobody reads any more
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
