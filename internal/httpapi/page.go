package httpapi

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// SendPage answers with a page of a list, {items, next_cursor, has_more}: n items, and the
// cursor of the next page, "" on the last page.
func (c *Call) SendPage(n int, next string, write func(i int, o *strictjson.Object)) {
	o := strictjson.NewObject(make([]byte, 0, 128+512*n))
	o.Objects("items", n, write)
	if next != "" {
		o.Text("next_cursor", next)
	} else {
		o.Null("next_cursor")
	}
	o.Bool("has_more", next != "")
	c.Send(http.StatusOK, JSON, o.End())
}

// FormatCursor makes the cursor that continues a list after the item with this time of creation
// and key.
func FormatCursor(at time.Time, key string) string {
	text := strconv.FormatInt(at.UnixMicro(), 10) + "." + key
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// ParseCursor reads a cursor of FormatCursor; ok is false for any other text. The caller checks
// whether the key is valid.
func ParseCursor(text string) (at time.Time, key string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return at, "", false
	}
	micros, key, _ := strings.Cut(string(raw), ".")
	n, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || n < 1 || n > 1<<53 {
		return at, "", false
	}
	return time.UnixMicro(n).UTC(), key, true
}
