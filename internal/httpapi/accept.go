package httpapi

import (
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// ErrNotAcceptable is the answer to who cannot take what there is.
var ErrNotAcceptable = &StatusError{http.StatusNotAcceptable,
	"the answers of this path are application/json, which Accept does not admit"}

// AcceptsJSON reports whether the caller takes JSON: Accept is absent, or admits
// application/json, itself or by a wildcard. The most specific range counts.
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

// AcceptsHTML reports whether the caller names text/html among what it takes, as browsers do. A
// wildcard does not: programs send one that know nothing of HTML.
func AcceptsHTML(r *http.Request) bool {
	for kind, acceptable := range acceptedTypes(r.Header["Accept"]) {
		if kind == "text/html" && acceptable {
			return true
		}
	}
	return false
}

// acceptedTypes yields the media ranges of Accept and whether they are wanted.
func acceptedTypes(header []string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, line := range header {
			for entry := range strings.SplitSeq(line, ",") {
				kind, params, err := mime.ParseMediaType(entry)
				if err == nil && !yield(kind, positiveWeight(params["q"])) {
					return
				}
			}
		}
	}
}

// positiveWeight tells a weight above nothing; one that is no number counts as none given.
func positiveWeight(q string) bool {
	weight, err := strconv.ParseFloat(q, 64)
	return err != nil || weight > 0
}

// HasPlainJSONContentType reports whether the body is declared as application/json itself;
// parameters are of no matter.
func (c *Call) HasPlainJSONContentType() bool {
	given := c.Request.Header["Content-Type"]
	if len(given) != 1 {
		return false
	}
	kind, _, err := mime.ParseMediaType(given[0])
	return err == nil && kind == JSON[0]
}

// HasBody reports whether the request brings a body, as far as its header says.
func (c *Call) HasBody() bool { return c.Request.ContentLength != 0 }
