package httpapi

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// ErrNotAcceptable is the answer to who cannot take what there is.
var ErrNotAcceptable = &Refusal{http.StatusNotAcceptable, "the answers of this path are application/json, which Accept does not admit"}

// AcceptsJSON reports whether the caller takes JSON: Accept is absent, or admits
// application/json, itself or by a wildcard. The most specific range counts.
func (c *Call) AcceptsJSON() bool {
	given := c.Request.Header["Accept"]
	if len(given) == 0 {
		return true
	}
	best, admits := 0, false
	for _, line := range given {
		for entry := range strings.SplitSeq(line, ",") {
			kind, params, err := mime.ParseMediaType(entry)
			if err != nil {
				continue
			}
			rank := map[string]int{"*/*": 1, "application/*": 2, JSON[0]: 3}[kind]
			if rank > best {
				best, admits = rank, wanted(params["q"])
			} else if rank > 0 && rank == best {
				admits = admits || wanted(params["q"])
			}
		}
	}
	return admits
}

// wanted tells a weight above nothing; one that is no number counts as none given.
func wanted(q string) bool {
	weight, err := strconv.ParseFloat(q, 64)
	return err != nil || weight > 0
}

// SaysPlainJSON reports whether the body is declared as application/json itself;
// parameters are of no matter.
func (c *Call) SaysPlainJSON() bool {
	given := c.Request.Header["Content-Type"]
	if len(given) != 1 {
		return false
	}
	kind, _, err := mime.ParseMediaType(given[0])
	return err == nil && kind == JSON[0]
}

// HasBody reports whether the request brings a body, as far as its header says.
func (c *Call) HasBody() bool { return c.Request.ContentLength != 0 }
