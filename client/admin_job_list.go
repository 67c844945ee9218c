package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strings"
)

// AdminJobList selects the jobs of a list and their order.
type AdminJobList struct {
	// Filter has the members for jobs; those for dead letters are refused.
	Filter AdminBulkFilter
	// Oldest lists by number ascending; otherwise the newest jobs come first.
	Oldest bool
	// PageSize is how many jobs one request reads; zero means as many as the server chooses.
	PageSize int
}

// Jobs iterates over the jobs of all contracts that match a filter (AD-010). It ends with the first
// error. Where few jobs match, it asks the server more than once for the next of them.
//
// Errors: [ErrInvalid], [ErrUnauthorized].
func (a *Admin) Jobs(ctx context.Context, l AdminJobList) iter.Seq2[AdminJob, error] {
	query, err := l.Filter.query()
	if err != nil {
		return func(yield func(AdminJob, error) bool) { yield(AdminJob{}, err) }
	}
	if l.Oldest {
		query.Set("order", "oldest")
	}
	return adminPages[AdminJob](ctx, a, "admin jobs", "/admin/v1/jobs", query, l.PageSize)
}

// query returns the members of the filter, which have the same names in JSON, as query parameters.
func (f *AdminBulkFilter) query() (url.Values, error) {
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
