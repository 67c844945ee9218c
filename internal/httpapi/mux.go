package httpapi

import (
	"net/http"
	"slices"
	"strings"
)

// PrefixHandler is a handler and the paths it serves. A prefix that ends in a slash covers the
// paths below it; one that does not also covers itself: "/jobs" covers "/jobs" and "/jobs/7",
// but not "/jobsite".
type PrefixHandler struct {
	Name     string
	Prefixes []string
	Handler  http.Handler
	// Requests returns how many requests were answered, and how many of them with a status of 500
	// or above; nil where they are not counted.
	Requests func() (requests, errors uint64)
}

// NewMux serves handlers side by side. Of several prefixes that cover a path the longest one
// decides; a path that no prefix covers is answered with 404 in plain text (G-X-02).
func NewMux(handlers ...PrefixHandler) http.Handler {
	type entry struct {
		prefix  string
		handler http.Handler
	}
	var entries []entry
	for _, h := range handlers {
		for _, prefix := range h.Prefixes {
			entries = append(entries, entry{prefix, h.Handler})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return len(b.prefix) - len(a.prefix) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := escapedPath(r)
		for _, e := range entries {
			if prefixMatches(e.prefix, path) {
				e.handler.ServeHTTP(w, r)
				return
			}
		}
		NotFound(w)
	})
}

// NotFound answers a request for a path that no handler serves.
func NotFound(w http.ResponseWriter) {
	http.Error(w, notFoundText, http.StatusNotFound)
}

const notFoundText = "there is nothing at this path"

// prefixMatches reports whether a prefix covers a path, as PrefixHandler describes it.
func prefixMatches(prefix, path string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || prefix[len(prefix)-1] == '/' || rest[0] == '/')
}

// escapedPath returns the path as it was sent. URL.EscapedPath alone does not: where the path
// contains a character that should have been escaped and was not, it escapes the decoded path
// again, and an escaped slash becomes a real one.
func escapedPath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.EscapedPath()
}
