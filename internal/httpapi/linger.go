package httpapi

import (
	"io"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/telemetry"
)

// What is still read of a body after it was refused: as long as it moves, and no
// more than that.
const (
	lingerTimeout  = 10 * time.Second
	maxLingerBytes = 64 << 20
	lingerChunk    = 32 << 10 // must come within drainTimeout
)

// linger sends the answer and reads on. A connection that is closed while the
// client still sends is reset, and many clients send all they have before they
// look for the answer: they would never see it. (HTTP/2 tells the client to stop.)
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
			return // its end, as a rule
		}
	}
}
