package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strings"
)

// AdminJobQuery selects the jobs of a list, and their order.
type AdminJobQuery struct {
	// Filter has the fields for jobs; those for dead letters are refused.
	Filter AdminFilter
	// Oldest lists by number ascending; otherwise the newest jobs come first.
	Oldest bool
	// PageSize is how many jobs one request reads; 0 is the server's default.
	PageSize int
}

// Jobs iterates over the jobs of all contracts that match a filter (AD-010). Where few jobs match,
// it may need several requests to find the next one. It ends with the first error.
//
// Errors: [ErrInvalid], [ErrUnauthorized].
func (a *Admin) Jobs(ctx context.Context, q AdminJobQuery) iter.Seq2[AdminJob, error] {
	query, err := q.Filter.query()
	if err != nil {
		return func(yield func(AdminJob, error) bool) { yield(AdminJob{}, err) }
	}
	if q.Oldest {
		query.Set("order", "oldest")
	}
	return adminPages[AdminJob](ctx, a, "admin jobs", "/admin/v1/jobs", query, q.PageSize)
}

// query returns the fields of the filter as query parameters, which have the names of the JSON
// members.
func (f *AdminFilter) query() (url.Values, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range members {
		var one string
		var several []string
		switch {
		case json.Unmarshal(value, &one) == nil:
			query.Set(name, one)
		case json.Unmarshal(value, &several) == nil:
			query.Set(name, strings.Join(several, ","))
		default: // a number, or several
			query.Set(name, strings.Trim(string(value), "[]"))
		}
	}
	return query, nil
}
