package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// A list is answered in pages. The cursor of a page is the position of its last item, as a text
// that clients must not look into; the next page begins after it:
//
//	Pages.Read   limit and cursor of the request ─▶ limit, position
//	             the contract reads limit+1 items after the position
//	SendPage     the first limit items, and a cursor if there are more

// Pages describes the pages of a list. P is a position in the list, the zero P its beginning.
type Pages[P any] struct {
	DefaultLimit int // items of a page, if the request has no limit
	MaxLimit     int
	LimitText    string // refuses a limit; its %d stands for MaxLimit
	Cursor       Cursor[P]
}

// PageQuery names the query parameters of a list: its filters, and those that Pages reads.
func PageQuery(filters ...string) []string { return append(filters, "limit", "cursor") }

// Cursor is the form of a list's cursors. A text of which parse returns false is refused.
type Cursor[P any] struct {
	Format func(P) string
	Parse  func(string) (P, bool)
}

// ErrCursor refuses a cursor that no page has returned.
var ErrCursor error = &job.Error{Kind: job.Invalid, Op: "httpapi.page", Msg: "invalid cursor"}

// Read reads the query parameters limit and cursor.
func (p *Pages[P]) Read(c *Call) (limit int, after P, err error) {
	limit = p.DefaultLimit
	text, given, err := c.Query("limit")
	if err != nil {
		return 0, after, err
	}
	if given {
		n, ok := ParseDigits(text)
		if !ok || n < 1 || n > p.MaxLimit {
			return 0, after, &job.Error{Kind: job.Invalid, Op: "httpapi.page",
				Msg: fmt.Sprintf(p.LimitText, p.MaxLimit)}
		}
		limit = n
	}
	text, given, err = c.Query("cursor")
	if err != nil || !given {
		return limit, after, err
	}
	position, ok := p.Cursor.Parse(text)
	if !ok {
		return 0, after, ErrCursor
	}
	return limit, position, nil
}

// SendPage answers with the first limit of the items, {items, next_cursor, has_more}. The caller
// has read one item more, if there is one: it shows that there is another page.
func SendPage[P, T any](c *Call, cursor Cursor[P], limit int, items []T, position func(T) P,
	write func(*strictjson.Object, T)) error {
	next := ""
	if len(items) > limit {
		items = items[:limit]
		next = cursor.Format(position(items[limit-1]))
	}
	return c.SendItems(len(items), next, func(i int, o *strictjson.Object) { write(o, items[i]) })
}

// SendItems answers with a page of n items and the cursor of the next page, "" on the last page.
func (c *Call) SendItems(n int, next string, write func(i int, o *strictjson.Object)) error {
	o := strictjson.NewObject(make([]byte, 0, 128+512*n))
	o.Objects("items", n, write)
	if next != "" {
		o.Text("next_cursor", next)
	} else {
		o.Null("next_cursor")
	}
	o.Bool("has_more", next != "")
	c.Send(http.StatusOK, JSON, o.End())
	return nil
}

// Position is the position of an item in a list that is ordered by time of creation and id.
type Position struct {
	At time.Time
	ID string // a UUID
}

// NewestFirst is the cursor of a list that begins with the newest item.
var NewestFirst = Cursor[Position]{Format: formatPosition, Parse: parsePosition}

func formatPosition(p Position) string {
	text := strconv.FormatInt(p.At.UnixMicro(), 10) + "." + p.ID
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parsePosition(text string) (p Position, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return p, false
	}
	micros, id, _ := strings.Cut(string(raw), ".")
	n, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || n < 1 || n > 1<<53 {
		return p, false
	}
	if id, ok = uuids.Parse(id); !ok {
		return p, false
	}
	return Position{time.UnixMicro(n).UTC(), id}, true
}

// Named makes the cursors of one list of several: name stands in front of them, so that a cursor of
// another list is refused.
func Named[P any](name string, cursor Cursor[P]) Cursor[P] {
	prefix := name + ":"
	return Cursor[P]{
		Format: func(p P) string {
			return base64.RawURLEncoding.EncodeToString([]byte(prefix + cursor.Format(p)))
		},
		Parse: func(text string) (p P, ok bool) {
			raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
			if err != nil || !strings.HasPrefix(string(raw), prefix) {
				return p, false
			}
			return cursor.Parse(string(raw[len(prefix):]))
		},
	}
}

// ByNumber is the cursor of a list of which the items have numbers above 0.
var ByNumber = Cursor[int64]{
	Format: func(n int64) string { return strconv.FormatInt(n, 10) },
	Parse: func(text string) (int64, bool) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, false
		}
		return n, n > 0 && strconv.FormatInt(n, 10) == text
	},
}

// ByID is the cursor of a list that is ordered by the ids of its items, which are UUIDs.
var ByID = Cursor[string]{Format: func(id string) string { return id }, Parse: uuids.Parse}
