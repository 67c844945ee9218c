package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// selectVersion is one round trip and no transaction of its own. The snapshot names the
// transactions that are under way and the first that has not begun: it is another one as soon as
// one that has written ends, here or in another database of the server. One that rolls back, or
// that only reads, changes nothing.
const selectVersion = "SELECT pg_current_snapshot()::text, " +
	"(extract(epoch FROM now())*1000000)::int8, " + selectServer

// Version returns a text that differs from one before if anything was committed in between, and
// the time of the database. The text has the server in it, as another one counts for itself.
func (s *Store) Version(ctx context.Context) (commits string, now time.Time, err error) {
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	slot, err := s.slots.acquire(ctx)
	if err != nil {
		return "", now, translate("store.version", err)
	}
	defer s.slots.release(slot)
	if err := s.connectBreaker.allow(); err != nil {
		return "", now, err
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return "", now, translate("store.version", err)
	}
	defer s.releaseConn(conn)
	se := &session{ctx: ctx, conn: conn, observe: s.config.Observe}
	results, err := se.simple(ctx, "version", selectVersion)
	if err != nil {
		return "", now, translate("store.version", err)
	}
	row := results[0].Rows[0]
	se.link.identify(string(row[2]))
	us, err := strconv.ParseInt(string(row[1]), 10, 64)
	if now = sqlstore.FromMicros(us); s.config.Now != nil {
		now = s.config.Now().UTC().Truncate(time.Microsecond)
	}
	return string(row[0]) + " " + string(row[2]), now, translate("store.version", err)
}
