package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// What the routes share of reading requests and of answering lists, {items, next_cursor}.

// newPages describes the pages of a list (G-AD-01).
func newPages[P any](cursor httpapi.Cursor[P]) httpapi.Pages[P] {
	return httpapi.Pages[P]{DefaultLimit: 50, MaxLimit: 500,
		LimitText: "limit must be a whole number from 1 to %d", Cursor: cursor}
}

// nameCursor is the cursor of lists that are ordered by a text of their items.
func nameCursor(list string) httpapi.Cursor[string] {
	return httpapi.Named(list, httpapi.Cursor[string]{
		Format: func(key string) string { return key },
		Parse:  func(key string) (string, bool) { return key, key != "" },
	})
}

// pageOf sorts items by their keys, which are unique, and returns those of a page and the cursor of
// the next one.
func pageOf[T any](all []T, key func(*T) string, pages *httpapi.Pages[string], after string,
	limit int) (page []T, next string) {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(key(&a), key(&b)) })
	all = slices.DeleteFunc(all, func(item T) bool { return after != "" && key(&item) <= after })
	if len(all) <= limit {
		return all, ""
	}
	return all[:limit], pages.Cursor.Format(key(&all[limit-1]))
}

// newList begins an answer with n items and the cursor of the next page, "" on the last one. The
// caller may add members.
func newList(n int, next string, write func(i int, o *strictjson.Object)) strictjson.Object {
	o := strictjson.NewObject(make([]byte, 0, 64+512*n))
	o.Objects("items", n, write)
	o.Optional("next_cursor", next)
	return o
}

// sendObject answers with an object.
func sendObject(c *httpapi.Call, status int, o *strictjson.Object) {
	c.Send(status, httpapi.JSON, o.End())
}

// parameters are those of a query, or the members of a filter in a body.
type parameters interface {
	Query(name string) (value string, given bool, err error)
}

// readText reads a parameter into p, if it is given. An empty one is refused: it would mean
// no filter where one was meant.
func readText(c parameters, name string, p *string) error {
	text, given, err := c.Query(name)
	if err != nil || !given {
		return err
	}
	if text == "" {
		return invalid(name + " is empty; leave it out to mean all")
	}
	if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return invalid(name + " is not UTF-8 or holds a NUL character")
	}
	*p = text
	return nil
}

// readChoice reads a parameter that is one of some words into p, if it is given.
func readChoice(c parameters, name string, p *string, words ...string) error {
	if err := readText(c, name, p); err != nil || *p == "" || slices.Contains(words, *p) {
		return err
	}
	return invalid(name + " must be one of " + strings.Join(words, ", "))
}

// readTime reads a parameter that is a time into p, if it is given.
func readTime(c parameters, name string, p *time.Time) error {
	text := ""
	err := readText(c, name, &text)
	if err != nil || text == "" {
		return err
	}
	if *p, err = parseTime(name, text); err != nil {
		return err
	}
	if p.IsZero() { // which would mean that the parameter is not given
		return invalid(name + " must be a time after the year 1")
	}
	return nil
}

// parseTime reads a time; an empty text is the zero time.
func parseTime(name, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at, err = strictjson.ParseTime(text); err != nil {
		return at, invalid(name + " must be a time such as 2026-03-01T12:00:00Z")
	}
	return at, nil
}

// writeText writes a member that is a text, or null.
func writeText(o *strictjson.Object, name string, value *string) {
	if value == nil {
		o.Null(name)
		return
	}
	o.Text(name, *value)
}

// writeNumber writes a member that is a whole number, or null.
func writeNumber(o *strictjson.Object, name string, value *int) {
	if value == nil {
		o.Null(name)
		return
	}
	o.Int(name, int64(*value))
}

// firstError returns the first of several errors, nil if there is none.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// readMembers reads a body that is a JSON object and refuses members with other names than those
// allowed. An empty body is an empty object.
func readMembers(c *httpapi.Call, allowed ...string) ([]byte, error) {
	body, err := c.OptionalJSONBody()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return []byte("{}"), nil
	}
	if err := strictjson.Check(body); err != nil {
		return nil, &job.Error{Kind: job.Malformed, Op: "admin.body",
			Msg: "the body is not JSON: " + err.Error()}
	}
	if strictjson.KindOf(body) != strictjson.KindObject {
		return nil, invalid("the body is not an object")
	}
	hint := "takes none"
	if len(allowed) > 0 {
		hint = "takes " + strings.Join(allowed, ", ")
	}
	for name := range strictjson.Members(body) {
		if !slices.Contains(allowed, string(name)) {
			shown := string(name[:min(len(name), maxQuoted)])
			return nil, invalid("the member \"" + shown + "\" is not known; this route " + hint)
		}
	}
	return body, nil
}

// maxQuoted bounds how much of a name an error repeats to its sender, in bytes.
const maxQuoted = 64

// isRead reports whether a request only reads.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}
