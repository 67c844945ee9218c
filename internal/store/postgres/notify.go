package postgres

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
)

const (
	channel             = "millrace"
	coalesce            = 5 * time.Millisecond // between two notifications of a node
	maxHashesPerMessage = 300                  // lanes; a payload may have 8000 bytes
	// until a connection that listens is asked whether it lives
	growInterval = 30 * time.Second
)

// Announce hands lanes to the one goroutine that notifies. When it lags, lanes
// are dropped: polling is the floor.
func (s *Store) Announce(lanes []job.QueueHash) {
	if len(lanes) == 0 {
		return
	}
	select {
	case s.announcements <- lanes:
	default:
	}
}

// announce sends what came together within coalesce as one notification, outside
// of any transaction of work: a NOTIFY inside would make commits wait in line.
func (s *Store) announce() {
	defer close(s.stopped)
	for {
		select {
		case <-s.stop:
			return
		case lanes := <-s.announcements:
			s.notify(s.batchAnnouncements(lanes))
			select {
			case <-time.After(coalesce):
			case <-s.stop:
				return
			}
		}
	}
}

func (s *Store) batchAnnouncements(first []job.QueueHash) map[job.QueueHash]bool {
	all := map[job.QueueHash]bool{}
	for lanes := first; ; {
		for _, l := range lanes {
			all[l] = true
		}
		select {
		case lanes = <-s.announcements:
		default:
			return all
		}
	}
}

func (s *Store) notify(lanes map[job.QueueHash]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	payload, n := s.node, 0
	send := func() {
		started := time.Now()
		_, err := s.db.ExecContext(ctx, "SELECT pg_notify($1,$2)", channel, payload)
		s.config.Observe("NOTIFY", time.Since(started), err)
		payload, n = s.node, 0
	}
	for l := range lanes {
		payload += "," + strconv.FormatInt(int64(l), 36)
		if n++; n == maxHashesPerMessage {
			send()
		}
	}
	if n > 0 {
		send()
	}
}

// Listen is documented at the port. A connection of its own listens; when it is
// lost another is made, and what was said meanwhile is lost with it. A pooler has no
// such connection: it would take LISTEN and pass nothing on.
func (s *Store) Listen(ctx context.Context, fn func([]job.QueueHash)) {
	if s.route.pooled {
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		s.listen(ctx, fn)
		select {
		case <-time.After(retryInterval + rand.N(retryInterval/2)):
		case <-ctx.Done():
		}
	}
}

func (s *Store) listen(ctx context.Context, fn func([]job.QueueHash)) {
	if s.connectBreaker.allow() != nil {
		return
	}
	conn, err := pgx.ConnectConfig(ctx, s.route.config.Copy())
	if err != nil {
		s.connectFailed(ctx, translate("store.listen", err))
		return
	}
	defer closeConn(conn)
	s.connectBreaker.reset()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return
	}
	for {
		n, err := wait(ctx, conn)
		if err != nil {
			return
		}
		if n == nil {
			continue
		}
		if lanes := s.parse(n.Payload); len(lanes) > 0 {
			fn(lanes)
		}
	}
}

// closer is a connection of either layer of pgx.
type closer interface{ Close(context.Context) error }

func closeConn(c closer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// wait returns the next notification, nil when none came for a while and the
// connection is alive: a peer that is gone without a word says nothing for ever.
func wait(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	quiet, cancel := context.WithTimeout(ctx, growInterval)
	defer cancel()
	n, err := conn.WaitForNotification(quiet)
	if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
		return n, err
	}
	ping, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return nil, conn.Ping(ping)
}

// parse reads a notification of another node.
func (s *Store) parse(payload string) (lanes []job.QueueHash) {
	parts := strings.Split(payload, ",")
	if parts[0] == s.node {
		return nil
	}
	for _, p := range parts[1:] {
		if l, err := strconv.ParseInt(p, 36, 64); err == nil {
			lanes = append(lanes, job.QueueHash(l))
		}
	}
	return lanes
}
