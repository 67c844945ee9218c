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

// What the routes share of reading requests and of answering lists, {items, next_cursor}. A page is
// made in one of two ways:
//
//	by number   jobs, dead letters, deliveries: the store reads the items behind a number
//	by name     short lists, such as queues: all items are read, and pageOf cuts the page out
//
// A cursor is the key of the last item of its page and not a count of items, so that what comes or
// goes between two requests shifts no page. It has the name of its list and order in it
// (httpapi.Named) and is refused by every other one, where its key would mean something else.
//
// The read functions leave a value as it is where its parameter is not given. The same functions
// read queries, bodies of bulk operations and forms, which differ in their parameters alone.

// newPages describes the pages of a list (G-AD-01).
func newPages[P any](cursor httpapi.Cursor[P]) httpapi.Pages[P] {
	return httpapi.Pages[P]{DefaultLimit: 50, MaxLimit: 500,
		LimitText: "limit must be a whole number from 1 to %d", Cursor: cursor}
}

// nameCursor is the cursor of lists that are ordered by a text of their items.
func nameCursor(list string) httpapi.Cursor[string] {
	return httpapi.Named(list, httpapi.Cursor[string]{
		Format: func(key string) string { return key },
		Parse:  func(key string) (string, bool) { return key, key != "" && isStorable(key) },
	})
}

// isStorable reports whether a text is one that databases take.
func isStorable(text string) bool {
	return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// pageOf returns the items of a page by their keys, which are unique, and the cursor of the next
// one.
func pageOf[T any](all []T, key func(*T) string, pages *httpapi.Pages[string], after string,
	limit int) (page []T, next string) {
	page = firstOf(all, key, after, limit+1)
	if len(page) <= limit {
		return page, ""
	}
	return page[:limit], pages.Cursor.Format(key(&page[limit-1]))
}

// firstOf returns the first n items by their keys, those with a key above after. It makes each key
// once, and keeps no more of many items than it needs.
func firstOf[T any](all []T, key func(*T) string, after string, n int) []T {
	type entry struct {
		key string
		at  int
	}
	var first []entry
	cut := func(limit int) {
		slices.SortFunc(first, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
		first = first[:min(limit, len(first))]
	}
	for i := range all {
		if k := key(&all[i]); after == "" || k > after {
			first = append(first, entry{k, i})
		}
		if len(first) >= 4*(n+1) {
			cut(n)
		}
	}
	cut(n)
	items := make([]T, len(first))
	for i, k := range first {
		items[i] = all[k.at]
	}
	return items
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

// parameters reads the parameters of a query, or the members of a filter in a body.
type parameters interface {
	Query(name string) (value string, given bool, err error)
}

// readText reads a parameter into p, if it is given. An empty one is refused: it would mean no
// filter where one was meant.
func readText(c parameters, name string, p *string) error {
	text, given, err := c.Query(name)
	if err != nil || !given {
		return err
	}
	if text == "" {
		return invalid(name + " is empty; leave it out to mean all")
	}
	if !isStorable(text) {
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

// readRange reads two parameters that bound a time, the first inclusively, the second exclusively.
func readRange(c parameters, from string, p *time.Time, before string, q *time.Time) error {
	if err := firstError(readTime(c, from, p), readTime(c, before, q)); err != nil {
		return err
	}
	return checkRange(from, *p, before, *q)
}

// checkRange refuses a first bound that is after the second. A zero time is no bound.
func checkRange(fromName string, from time.Time, beforeName string, before time.Time) error {
	if from.IsZero() || before.IsZero() || !from.After(before) {
		return nil
	}
	return errInverted(fromName, beforeName)
}

// errInverted refuses two bounds that are the wrong way round.
func errInverted(lower, upper string) error {
	return invalid(lower + " must not be above " + upper)
}

// parseTime reads a time.
func parseTime(name, text string) (at time.Time, err error) {
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
	given := map[string]bool{}
	for name := range strictjson.Members(body) {
		key := string(name)
		if !slices.Contains(allowed, key) {
			return nil, invalid("unknown member \"" + key[:min(len(key), maxQuoted)] +
				"\"; this route " + hint)
		}
		if given[key] {
			return nil, invalid(key + " is given twice")
		}
		given[key] = true
	}
	return body, nil
}

// maxQuoted bounds how much of a name an error repeats to its sender, in bytes.
const maxQuoted = 64

// isRead reports whether a request only reads.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// naturalKey returns a key that orders as a name does, but for the numbers in it, which it orders
// by their value: before each stands how many digits it has. Two names never have the same key.
func naturalKey(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		n := 0
		for i+n < len(name) && name[i+n] >= '0' && name[i+n] <= '9' {
			n++
		}
		if n > 0 {
			b.WriteByte('0' + byte(min(n, 9)))
		}
		b.WriteString(name[i : i+max(1, n)])
		i += max(1, n)
	}
	return b.String()
}
