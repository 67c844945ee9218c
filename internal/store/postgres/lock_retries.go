package postgres

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// A worker that records the end of its run in a transaction of its own keeps the job locked for as
// long as it likes. An update that needs the job waits as follows, so that such updates never keep
// all connections of a node (decision 0096):
//
//	try ─▶ not locked in shortLockTimeout ─▶ ROLLBACK, connection back
//	 ▲                                                  │
//	 └── a place among those who try again ◀── pause ◀──┘   for lock_timeout altogether
//
// The lock itself sets how long it waits (Dialect.ShortLockTimeout), until the end of its
// transaction. Waits that come before it, such as for a name, and those of updates that lock no
// such job are as long as lock_timeout, and in the order of PostgreSQL.

// shortLockTimeout is how long the lock of a job is waited for with a connection, as PostgreSQL
// reads it. It is long for one that another node has, and short where a worker has it.
const shortLockTimeout = "100ms"

// The pauses between two tries are random, and at most so long: the first one, and any.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// retryShare of the connections is the most that updates use which try again.
const retryShare = 4

// newRetries returns the places of updates that try again.
func newRetries(conns int) chan struct{} { return make(chan struct{}, max(1, conns/retryShare)) }

// updateRetryingLocks runs fn in a transaction, and again for as long as another one has locked
// what it needs. again is returned by runTx.
func (s *Store) updateRetryingLocks(ctx context.Context, fn func(store.Tx) error) (again bool,
	err error) {
	run := func(tx *sqlstore.Tx) error { return fn(tx) }
	waits, cancel := context.WithTimeout(ctx, s.route.lockTimeout)
	defer cancel()
	again, err = s.runTx(ctx, beginUpdate, run)
	backoff := clock.Backoff{Min: firstPause, Max: maxPause}
	for isLockTimeout(err) {
		if !clock.Sleep(waits, rand.N(backoff.Next())) || !s.awaitRetry(waits) {
			return false, cmp.Or(translate("store.lock", ctx.Err()), err)
		}
		again, err = s.retry(ctx, run)
	}
	return again, err
}

// awaitRetry takes a place among the updates that try again, and reports whether ctx has not ended.
func (s *Store) awaitRetry(ctx context.Context) bool {
	select {
	case s.retries <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// retry runs a transaction and gives the place of awaitRetry back.
func (s *Store) retry(ctx context.Context, run func(*sqlstore.Tx) error) (again bool, err error) {
	defer func() { <-s.retries }()
	return s.runTx(ctx, beginUpdate, run)
}

func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// lockTimeoutOf returns a lock_timeout as a URL has it, such as 10s, or 100 for milliseconds. A
// value that cannot be read, which PostgreSQL refuses, or 0, for none, gives the one in limits.
func lockTimeoutOf(value string) time.Duration {
	value = strings.TrimSpace(value)
	number := strings.TrimRight(value, "usmindh ")
	unit := map[string]time.Duration{"us": time.Microsecond, "ms": time.Millisecond,
		"": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour,
		"d": 24 * time.Hour}
	n, err := strconv.ParseFloat(number, 64)
	length := unit[strings.TrimSpace(value[len(number):])]
	if err != nil || n <= 0 || length == 0 {
		return lockTimeoutOf(limits["lock_timeout"])
	}
	return time.Duration(n * float64(length))
}
