package postgres_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestFullServerIsAskedSeldom has callers wait for connections while a full server lets none in and
// transactions of the node are under way: they try again with pauses, until their deadline, and get
// the connections that are given back.
func TestFullServerIsAskedSeldom(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	var refused atomic.Int64
	url := relayURL(t, pgtest.URL(t), &storetest.Faults{}, func(client net.Conn) bool {
		if !full.Load() {
			return true
		}
		refused.Add(1)
		r := &relay{client: client}
		if _, _, err := message(client, 0); err == nil {
			_ = r.send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL",
				Code: "53300", Message: "sorry, too many clients already"})
		}
		return false
	})
	const callers, seconds = 14, 2
	s := mustOpen(t, postgres.Config{URL: url, Conns: 16})
	began, release := make(chan struct{}), make(chan struct{})
	var holders, waiters sync.WaitGroup
	for range 2 {
		holders.Go(func() {
			if err := s.Update(context.Background(), func(store.Tx) error {
				began <- struct{}{}
				<-release
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		<-began
	}
	full.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	for range callers {
		waiters.Go(func() {
			if err := s.View(ctx, func(store.Reader) error {
				return nil
			}); !job.IsKind(err, job.Unavailable) || ctx.Err() == nil {
				t.Errorf("a caller before its deadline: %v", err)
			}
		})
	}
	waiters.Wait()
	if got := refused.Load(); got < 1 || got > callers*8*seconds {
		t.Errorf("%d callers asked the full server %d times in %d s", callers, got, seconds)
	}
	for range callers {
		waiters.Go(func() {
			if err := s.View(context.Background(), func(store.Reader) error {
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	waiters.Wait()
	holders.Wait()
}
