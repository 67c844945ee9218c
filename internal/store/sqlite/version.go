package sqlite

import (
	"context"
	"strconv"
	"time"
)

// Version returns a text that differs from one before if anything was committed in between, and
// the time of the database. It reads nothing: no other process writes. A view of a database in
// memory counts as a commit.
func (s *Store) Version(ctx context.Context) (commits string, now time.Time, err error) {
	now = s.config.Now().UTC().Truncate(time.Microsecond)
	return strconv.FormatInt(s.commits.Load(), 10), now, translate("store.version", ctx.Err())
}
