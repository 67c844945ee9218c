package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// Query returns a query parameter and whether it is given. A parameter that is given twice or
// escaped wrongly is Malformed, since the server must not guess which value was meant.
func (c *Call) Query(name string) (value string, given bool, err error) {
	for rest := c.Request.URL.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		key, v, _ := strings.Cut(pair, "=")
		if key, err = url.QueryUnescape(key); err != nil || key != name {
			continue // a wrongly escaped name is not this one
		}
		if given {
			return "", true, &job.Error{Kind: job.Malformed, Op: "httpapi.query",
				Msg: fmt.Sprintf("%s is given twice", name)}
		}
		given = true
		if value, err = url.QueryUnescape(v); err != nil {
			return "", true, &job.Error{Kind: job.Malformed, Op: "httpapi.query",
				Msg: fmt.Sprintf("%s is escaped wrongly", name)}
		}
	}
	return value, given, nil
}

// maxQuoted bounds how much of a parameter an error repeats to its sender.
const maxQuoted = 64

// CheckQuery refuses unknown query parameters as Malformed where the route names its own, or
// changes something: with a misspelt filter or mode, other things would be listed or changed than
// were meant. Other routes that only read ignore unknown parameters, unless the router's
// StrictQuery is set.
func (c *Call) CheckQuery() error {
	readsOnly := c.Route.Method == http.MethodGet || c.Route.Method == http.MethodHead
	ignores := readsOnly && len(c.Route.Query) == 0 && !c.router.StrictQuery
	if c.Request.URL.RawQuery == "" || ignores {
		return nil
	}
	for pair := range strings.SplitSeq(c.Request.URL.RawQuery, "&") {
		escaped, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(escaped)
		unknown := err != nil || !slices.Contains(c.Route.Query, name)
		if pair == "" || !unknown {
			continue
		}
		hint := "takes none"
		if len(c.Route.Query) > 0 {
			hint = "takes " + strings.Join(c.Route.Query, ", ")
		}
		return &job.Error{Kind: job.Malformed, Op: "httpapi.query",
			Msg: fmt.Sprintf("unknown query parameter %q; this route %s",
				escaped[:min(len(escaped), maxQuoted)], hint)}
	}
	return nil
}
