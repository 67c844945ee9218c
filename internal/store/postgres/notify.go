package postgres

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
)

// How the claims of a node are notified of jobs that another node has stored:
//
//	engine, after a commit ──> Notify ──> announcements ──> announce ──> NOTIFY millrace
//	engine, claims that wait <── Listen <── connection of its own <── LISTEN millrace
//
// A notification is a hint and nothing depends on it: one that is lost, dropped or late costs the
// time until the next poll. A node ignores its own, as it has notified its waiters directly.

const (
	channel             = "millrace"
	notifyInterval      = 5 * time.Millisecond // between two notifications of a node
	maxHashesPerMessage = 300                  // queues; a payload may have 8000 bytes
	// keepaliveInterval is how long a connection that listens may be silent before it is
	// checked.
	keepaliveInterval = 30 * time.Second
)

// Notify passes the queues to the one goroutine that notifies. When that is behind, they are
// dropped: nodes poll as well.
func (s *Store) Notify(queues []job.QueueHash) {
	if len(queues) == 0 {
		return
	}
	select {
	case s.announcements <- queues:
	default:
	}
}

// announce sends the announcements of one interval as one notification, outside of the updates'
// transactions: transactions with a NOTIFY commit one after another. It ends when the store is
// closed.
func (s *Store) announce() {
	for {
		select {
		case <-s.stop:
			return
		case queues := <-s.announcements:
			s.notify(s.batchAnnouncements(queues))
			select {
			case <-time.After(notifyInterval):
			case <-s.stop:
				return
			}
		}
	}
}

// batchAnnouncements adds what other callers have announced meanwhile, each queue once.
func (s *Store) batchAnnouncements(first []job.QueueHash) map[job.QueueHash]bool {
	all := map[job.QueueHash]bool{}
	for queues := first; ; {
		for _, q := range queues {
			all[q] = true
		}
		select {
		case queues = <-s.announcements:
		default:
			return all
		}
	}
}

// notify sends as many notifications as the queues need. Their payload is the node and the
// hashes in base 36. A failure is left to polling.
func (s *Store) notify(queues map[job.QueueHash]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	payload, n := s.node, 0
	send := func() {
		started := time.Now()
		_, err := s.db.ExecContext(ctx, "SELECT pg_notify($1,$2)", channel, payload)
		s.config.Observe("NOTIFY", time.Since(started), err)
		payload, n = s.node, 0
	}
	for q := range queues {
		payload += "," + strconv.FormatInt(int64(q), 36)
		if n++; n == maxHashesPerMessage {
			send()
		}
	}
	if n > 0 {
		send()
	}
}

// Listen is documented at the port. It has a connection of its own. When that is lost it makes
// another one; notifications in between are lost too. Behind a pooler nothing can listen: a
// pooler accepts LISTEN and passes no notifications on.
func (s *Store) Listen(ctx context.Context, fn func([]job.QueueHash)) {
	if s.route.pooled {
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		s.listen(ctx, fn)
		clock.Sleep(ctx, retryInterval+rand.N(retryInterval/2))
	}
}

// listen listens on one connection until that fails. It counts as a try of connectBreaker, so
// that a server that is unavailable is not asked more often by it.
func (s *Store) listen(ctx context.Context, fn func([]job.QueueHash)) {
	if s.connectBreaker.allow() != nil {
		return
	}
	cfg := s.route.config.Copy()
	s.route.order(cfg)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		s.connectFailed(ctx, translate("store.listen", err))
		return
	}
	defer closeConn(conn)
	s.connectBreaker.reset()
	server := ""
	if err := conn.QueryRow(ctx, "SELECT "+selectServer).Scan(&server); err != nil {
		return
	}
	connectionOf(conn.PgConn()).identify(server)
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
		if queues := s.parse(n.Payload); len(queues) > 0 {
			fn(queues)
		}
	}
}

// closer is a connection of either layer of pgx.
type closer interface{ Close(context.Context) error }

// closeConn closes a connection, within a second and without a ctx that may have ended already.
func closeConn(c closer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// wait returns the next notification, or nil if none came for keepaliveInterval and the
// connection still works. Without that check a server that vanished would never be noticed.
func wait(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waitCtx, cancel := context.WithTimeout(ctx, keepaliveInterval)
	defer cancel()
	n, err := conn.WaitForNotification(waitCtx)
	timedOut := ctx.Err() == nil && pgconn.Timeout(err)
	if !timedOut {
		return n, err
	}
	ping, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return nil, conn.Ping(ping)
}

// parse returns the queues in a notification of another node. What it cannot read is passed
// over: any client of the database can send to the channel.
func (s *Store) parse(payload string) (queues []job.QueueHash) {
	parts := strings.Split(payload, ",")
	if parts[0] == s.node {
		return nil
	}
	for _, p := range parts[1:] {
		hash, err := strconv.ParseInt(p, 36, 64)
		if err != nil {
			continue // of no node of ours
		}
		queues = append(queues, job.QueueHash(hash))
	}
	return queues
}
