package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// The limits of every server.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 60 * time.Second // of a request; a large body extends it while it moves
	writeTimeout  = 75 * time.Second // from the end of the header: a poll of 30 s and its answer
	idleTimeout   = 60 * time.Second
	// A path may name a queue and an id of 1024 characters each: percent-encoded 24 KiB.
	maxHeaderBytes = 32 << 10
)

// NewServer makes the server of one listener. It speaks HTTP/1 and HTTP/2, the latter also on
// cleartext connections with prior knowledge (RFC 9113, section 3.3). Handlers that move large
// bodies extend its deadlines piece by piece.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
