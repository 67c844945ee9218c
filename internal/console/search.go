package console

import (
	"sync"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
)

// A page that searches texts ends soon, with what it has found (decision 0093). The script goes on
// with the page after it, and adds its rows, one page at a time: each page says after which pause
// the next one may be asked for. Without the script a link leads there.
//
//	page ─▶ maxSearchTime ─▶ rows, searched to ─▶ pause ─▶ the next page ─▶ … a full page, the end

// maxSearchTime is how long a page searches texts. With what else a page does it is well below the
// 100 ms that pages have.
const maxSearchTime = 40 * time.Millisecond

// All searches of a node together take one part in searchParts of the time: the more there are, and
// the longer each page takes, the longer each pauses.
const (
	searchParts    = 3
	maxSearchPause = time.Minute
)

// searchLimiter limits the searches of all pages of a node.
type searchLimiter struct {
	mu            sync.Mutex
	reservedUntil time.Time
}

// reserve returns how long a page that took so long until now pauses before the next one.
func (s *searchLimiter) reserve(now time.Time, took time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began := now.Add(-took); s.reservedUntil.Before(began) {
		s.reservedUntil = began
	}
	s.reservedUntil = s.reservedUntil.Add(searchParts * took)
	if latest := now.Add(maxSearchPause); s.reservedUntil.After(latest) {
		s.reservedUntil = latest
	}
	return s.reservedUntil.Sub(now)
}

// textSearch is a search of texts that goes on with the next page.
type textSearch struct {
	SearchedTo time.Time // when the last job was created that was looked at
	Limit      int       // how many rows a whole page has
	Pause      int64     // until the next page may be asked for, in milliseconds
}

// searchOf returns what a page says of its search; nil if that has come to its end or has filled
// the page.
func (o *Console) searchOf(c *httpapi.Call, to time.Time, rows, limit int,
	next string) *textSearch {
	if next == "" || to.IsZero() || rows >= limit {
		return nil
	}
	pause := o.searches.reserve(o.api.Now(), c.Elapsed())
	return &textSearch{to, limit, max(1, pause.Milliseconds())}
}
