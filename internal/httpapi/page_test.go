package httpapi_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

const anID = "019a0000-0000-7000-8000-000000000001"

func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 29, 12, 0, 0, 123456000, time.UTC)
	cursor := httpapi.NewestFirst.Format(httpapi.Position{At: at, ID: anID})
	if want := encoded("1774785600123456." + anID); cursor != want {
		t.Errorf("the cursor is %s, want %s", cursor, want)
	}
	got, ok := httpapi.NewestFirst.Parse(cursor)
	if !ok || !got.At.Equal(at) || got.ID != anID {
		t.Errorf("read %v %t", got, ok)
	}
	for _, text := range []string{"", "%", ".", "1.x", "x." + anID, "-1." + anID, "0." + anID,
		"9007199254740993." + anID, "99999999999999999999." + anID} {
		if _, ok := httpapi.NewestFirst.Parse(encoded(text)); ok {
			t.Errorf("%q is read as a cursor", text)
		}
	}
	if _, ok := httpapi.NewestFirst.Parse("not base64!"); ok {
		t.Error("what is no base64 is read as a cursor")
	}
}

func TestNamedCursors(t *testing.T) {
	t.Parallel()
	byID, byNumber := httpapi.Named("k", httpapi.ByID), httpapi.Named("j", httpapi.ByNumber)
	if got, want := byID.Format(anID), encoded("k:"+anID); got != want {
		t.Errorf("the cursor is %s, want %s", got, want)
	}
	if id, ok := byID.Parse(byID.Format(anID)); id != anID || !ok {
		t.Errorf("read %s %t", id, ok)
	}
	if n, ok := byNumber.Parse(byNumber.Format(7)); n != 7 || !ok {
		t.Errorf("read %d %t", n, ok)
	}
	for _, text := range []string{"", "7", "k:7", "j:", "j:0", "j:-7", "j:07", "j:+7", "j:x"} {
		if _, ok := byNumber.Parse(encoded(text)); ok {
			t.Errorf("%q is read as a cursor", text)
		}
	}
	for _, text := range []string{"j:" + anID, "k:7", "k:"} {
		if _, ok := byID.Parse(encoded(text)); ok {
			t.Errorf("%q is read as a cursor", text)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	pages := httpapi.Pages[int64]{DefaultLimit: 2, MaxLimit: 3, LimitText: "1 to %d, please",
		Cursor: httpapi.ByNumber}
	numbers := []int64{1, 2, 3, 4, 5}
	for query, want := range map[string]string{
		"":                   `{"items":[{"n":1},{"n":2}],"next_cursor":"2","has_more":true}`,
		"limit=3":            `{"items":[{"n":1},{"n":2},{"n":3}],"next_cursor":"3","has_more":true}`,
		"limit=3&cursor=2":   `{"items":[{"n":3},{"n":4},{"n":5}],"next_cursor":null,"has_more":false}`,
		"cursor=4":           `{"items":[{"n":5}],"next_cursor":null,"has_more":false}`,
		"cursor=5":           `{"items":[],"next_cursor":null,"has_more":false}`,
		"limit=0":            "invalid 1 to 3, please",
		"limit=4":            "invalid 1 to 3, please",
		"limit=":             "invalid 1 to 3, please",
		"limit=%2B1":         "invalid 1 to 3, please",
		"limit=1&limit=1":    "malformed limit is given twice",
		"cursor=":            "invalid invalid cursor",
		"cursor=x":           "invalid invalid cursor",
		"cursor=1&cursor=1":  "malformed cursor is given twice",
		"limit=9&cursor=bad": "invalid 1 to 3, please",
	} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			answer := httptest.NewRecorder()
			c := &httpapi.Call{ResponseWriter: answer,
				Request: httptest.NewRequest(http.MethodGet, "/?"+query, nil)}
			limit, after, err := pages.Read(c)
			var e *job.Error
			if errors.As(err, &e) {
				if got := fmt.Sprint(e.Kind, " ", e.Msg); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				return
			}
			items := numbers[after:]
			err = httpapi.SendPage(c, pages.Cursor, limit, items[:min(len(items), limit+1)],
				func(n int64) int64 { return n },
				func(o *strictjson.Object, n int64) { o.Int("n", n) })
			if got := answer.Body.String(); err != nil || got != want {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
}
