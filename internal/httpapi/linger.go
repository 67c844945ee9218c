package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/telemetry"
)

// The bounds of reading a refused body: it is read as long as it keeps moving, up to these.
const (
	lingerTimeout  = 10 * time.Second
	maxLingerBytes = 64 << 20
	lingerChunk    = 32 << 10 // must come within drainTimeout
)

// linger sends the answer and then discards what the client still sends. A connection that is
// closed while the client is sending is reset, and many clients send their whole body before they
// read the answer: they would never see it. HTTP/2 needs no lingering, because it can signal the
// client to stop.
func (c *Call) linger() {
	if !c.HasBody() || c.bodyEnded.Load() || c.Request.ProtoMajor != 1 {
		return
	}
	rc := http.NewResponseController(c.ResponseWriter)
	if rc.Flush() != nil {
		return
	}
	lastDeadline := telemetry.Deadline(lingerTimeout)
	for range maxLingerBytes / lingerChunk {
		deadline := telemetry.Deadline(drainTimeout)
		if deadline.After(lastDeadline) {
			deadline = lastDeadline
		}
		_ = rc.SetReadDeadline(deadline)
		if _, err := io.CopyN(io.Discard, c.Request.Body, lingerChunk); err != nil {
			// The end of the body, also one that net/http has read before the answer, or a client
			// that stopped sending.
			if isBodyEnd(err) {
				keepConnection(rc, deadline)
			}
			return
		}
	}
}

// isBodyEnd reports whether a read of a body says that it has ended. net/http closes one that it
// has read to its end.
func isBodyEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, http.ErrBodyReadAfterClose)
}

// keepConnection takes the deadline from a connection on which no more of a body can come. One that
// may have passed behind the body leaves it of no use, see shortenReadDeadline: it is closed.
func keepConnection(rc *http.ResponseController, deadline time.Time) {
	if err := rc.SetReadDeadline(time.Time{}); err != nil {
		return // it has no deadline, or is closed already
	}
	if telemetry.HasPassed(deadline) {
		panic(http.ErrAbortHandler)
	}
}
