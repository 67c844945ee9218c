package httpapi

import (
	"errors"
	"net"
	"net/http"
	"unicode/utf8"
)

// The headers of workers (AD-040, AD-041).
const (
	workerHeader = "Millrace-Worker"
	drainHeader  = "Millrace-Drain"
)

// maxWorkerName bounds the name of a worker, in bytes.
const maxWorkerName = 255

// WorkerName returns the name of the worker that sends a request: that of the header
// Millrace-Worker, else its address. The error is for its sender.
func WorkerName(r *http.Request) (string, error) {
	name := r.Header.Get(workerHeader)
	switch {
	case name == "":
		return RemoteHost(r), nil
	case len(name) > maxWorkerName || !utf8.ValidString(name):
		return "", errors.New("the header " + workerHeader + " takes a name of up to 255 bytes")
	}
	return name, nil
}

// RemoteHost returns the address of the caller without its port, which differs for each of its
// connections.
func RemoteHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// SetDrain marks the empty answer to a worker that is drained: it gets nothing more.
func SetDrain(h http.Header, draining bool) {
	if draining {
		h.Set(drainHeader, "true")
	}
}
