package client

import (
	"iter"
	"net/url"
	"slices"
	"strconv"
)

// page is one page of a list. ForgeRun, FetchBox and Images have the same form of pages.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next_cursor"`
	More  bool   `json:"has_more"`
}

// pages iterates over a list and reads it page by page, of size items each or of as many as the
// server chooses. It ends with the first error. It may be iterated several times, each from the
// first page on.
func pages[T any](query url.Values, size int,
	read func(url.Values) (page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := cloneValues(query)
		if size > 0 {
			query.Set("limit", strconv.Itoa(size))
		}
		for {
			page, err := read(query)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if !page.More || page.Next == "" {
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

func cloneValues(from url.Values) url.Values {
	to := url.Values{}
	for name, values := range from {
		to[name] = slices.Clone(values)
	}
	return to
}
