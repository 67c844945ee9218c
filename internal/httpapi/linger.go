package httpapi

import (
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
// closed while the client is sending is reset, and many clients send their whole body before
// they read the answer: they would never see it. HTTP/2 needs no lingering, because it can
// tell the client to stop.
func (c *Call) linger() {
	if !c.HasBody() || c.Request.ProtoMajor != 1 {
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
			return // the end of the body, or a client that stopped sending
		}
	}
}
