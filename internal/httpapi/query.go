package httpapi

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// Query returns a parameter of the query and whether it is there. Given twice,
// or escaped wrongly, it is Malformed: nobody is to guess which one was meant.
func (c *Call) Query(name string) (value string, given bool, err error) {
	for rest := c.Request.URL.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		key, v, _ := strings.Cut(pair, "=")
		if key, err = url.QueryUnescape(key); err != nil || key != name {
			continue // escaped wrongly and so not this one
		}
		if given {
			return "", true, &job.Error{Kind: job.Malformed, Op: "httpapi.query", Msg: fmt.Sprintf("%s is given twice", name)}
		}
		given = true
		if value, err = url.QueryUnescape(v); err != nil {
			return "", true, &job.Error{Kind: job.Malformed, Op: "httpapi.query", Msg: fmt.Sprintf("%s is escaped wrongly", name)}
		}
	}
	return value, given, nil
}
