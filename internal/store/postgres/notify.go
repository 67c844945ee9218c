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
	channel    = "millrace"
	coalesce   = 5 * time.Millisecond // between two notifications of a node
	perMessage = 300                  // lanes; a payload may have 8000 bytes
	quietTime  = 30 * time.Second     // until a connection that listens is asked whether it lives
)

// Announce hands lanes to the one goroutine that notifies. When it lags, lanes
// are dropped: polling is the floor.
func (s *Store) Announce(lanes []job.Lane) {
	if len(lanes) == 0 {
		return
	}
	select {
	case s.lanes <- lanes:
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
		case lanes := <-s.lanes:
			s.notify(s.gather(lanes))
			select {
			case <-time.After(coalesce):
			case <-s.stop:
				return
			}
		}
	}
}

func (s *Store) gather(first []job.Lane) map[job.Lane]bool {
	all := map[job.Lane]bool{}
	for lanes := first; ; {
		for _, l := range lanes {
			all[l] = true
		}
		select {
		case lanes = <-s.lanes:
		default:
			return all
		}
	}
}

func (s *Store) notify(lanes map[job.Lane]bool) {
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
		if n++; n == perMessage {
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
func (s *Store) Listen(ctx context.Context, fn func([]job.Lane)) {
	if s.route.pooled {
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		s.listen(ctx, fn)
		select {
		case <-time.After(retryEvery + rand.N(retryEvery/2)):
		case <-ctx.Done():
		}
	}
}

func (s *Store) listen(ctx context.Context, fn func([]job.Lane)) {
	if s.reached.enter() != nil {
		return
	}
	conn, err := pgx.ConnectConfig(ctx, s.route.config.Copy())
	if err != nil {
		s.unreached(ctx, translate("store.listen", err))
		return
	}
	defer closeConn(conn)
	s.reached.open()
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
	quiet, cancel := context.WithTimeout(ctx, quietTime)
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
func (s *Store) parse(payload string) (lanes []job.Lane) {
	parts := strings.Split(payload, ",")
	if parts[0] == s.node {
		return nil
	}
	for _, p := range parts[1:] {
		if l, err := strconv.ParseInt(p, 36, 64); err == nil {
			lanes = append(lanes, job.Lane(l))
		}
	}
	return lanes
}
