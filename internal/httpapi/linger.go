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
	lingerTime  = 10 * time.Second
	lingerSize  = 64 << 20
	lingerPiece = 32 << 10 // must come within drainTime
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
	end := telemetry.Deadline(lingerTime)
	for range lingerSize / lingerPiece {
		deadline := telemetry.Deadline(drainTime)
		if deadline.After(end) {
			deadline = end
		}
		_ = rc.SetReadDeadline(deadline)
		if _, err := io.CopyN(io.Discard, c.Request.Body, lingerPiece); err != nil {
			return // its end, as a rule
		}
	}
}
