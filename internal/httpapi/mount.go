package httpapi

import (
	"net/http"
	"slices"
	"strings"
)

// PrefixHandler is a part of the path space and who serves it. A prefix that ends in a
// slash holds what is below it, one that does not also itself: "/jobs" holds
// "/jobs" and "/jobs/7", but not "/jobsite".
type PrefixHandler struct {
	Name     string
	Prefixes []string
	Handler  http.Handler
}

// NewMux serves mounts side by side. Of several prefixes that hold a path the
// longest counts; what no mount holds is a 404 in plain text (G-X-02).
func NewMux(handlers ...PrefixHandler) http.Handler {
	type entry struct {
		prefix  string
		handler http.Handler
	}
	var entries []entry
	for _, m := range handlers {
		for _, p := range m.Prefixes {
			entries = append(entries, entry{p, m.Handler})
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

// NotFound answers who asks for a path that nobody serves.
func NotFound(w http.ResponseWriter) {
	http.Error(w, notFoundText, http.StatusNotFound)
}

const notFoundText = "there is nothing at this path"

func prefixMatches(prefix, path string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || prefix[len(prefix)-1] == '/' || rest[0] == '/')
}

// escapedPath is the path as it was sent. URL.EscapedPath alone is not: where
// the path holds a character that should have been escaped and was not, it
// escapes the decoded path anew, and an escaped slash becomes a real one.
func escapedPath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.EscapedPath()
}
