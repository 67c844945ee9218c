package httpapi

import (
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// ErrNotAcceptable answers a request whose Accept header excludes JSON.
var ErrNotAcceptable = &StatusError{http.StatusNotAcceptable,
	"the answers of this path are application/json, which Accept does not admit"}

// AcceptsJSON reports whether the caller accepts JSON: Accept is absent, or admits
// application/json by name or by a wildcard. The most specific range decides.
func (c *Call) AcceptsJSON() bool {
	header := c.Request.Header["Accept"]
	if len(header) == 0 {
		return true
	}
	bestRank, accepts := 0, false
	for kind, acceptable := range acceptedTypes(header) {
		rank := map[string]int{"*/*": 1, "application/*": 2, JSON[0]: 3}[kind]
		if rank > bestRank {
			bestRank, accepts = rank, acceptable
		} else if rank > 0 && rank == bestRank {
			accepts = accepts || acceptable
		}
	}
	return accepts
}

// AcceptsHTML reports whether Accept names text/html, as browsers do. A wildcard is not enough:
// programs that do not display HTML send one too.
func AcceptsHTML(r *http.Request) bool {
	for kind, acceptable := range acceptedTypes(r.Header["Accept"]) {
		if kind == "text/html" && acceptable {
			return true
		}
	}
	return false
}

// acceptedTypes yields the media ranges of Accept, each with whether its weight is above zero.
// Ranges that cannot be parsed are skipped.
func acceptedTypes(header []string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, line := range header {
			for entry := range strings.SplitSeq(line, ",") {
				kind, params, err := mime.ParseMediaType(entry)
				if err != nil {
					continue
				}
				if !yield(kind, positiveWeight(params["q"])) {
					return
				}
			}
		}
	}
}

// positiveWeight reports whether a weight is above zero. One that is absent or no number is.
func positiveWeight(q string) bool {
	weight, err := strconv.ParseFloat(q, 64)
	return err != nil || weight > 0
}

// HasPlainJSONContentType reports whether the body is declared as application/json itself, with
// any parameters.
func (c *Call) HasPlainJSONContentType() bool {
	kind, ok := mediaType(c.Request.Header["Content-Type"])
	return ok && kind == JSON[0]
}

// mediaType parses a Content-Type that is given exactly once.
func mediaType(header []string) (kind string, ok bool) {
	if len(header) != 1 {
		return "", false
	}
	kind, _, err := mime.ParseMediaType(header[0])
	return kind, err == nil
}

// HasBody reports whether the request has a body, as far as its header says. A chunked body
// counts even when it turns out to be empty.
func (c *Call) HasBody() bool { return c.Request.ContentLength != 0 }
