package postgres

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestGate: while a database refuses, one try a second gets through, and as soon as one was served
// all do.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gate
		refusal := errors.New("refused")
		tries := 0
		for range 60 * 1000 { // a minute
			if err := g.enter(); err == nil {
				tries++
				g.close(refusal)
			} else if !errors.Is(err, refusal) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if tries < 55 || tries > 61 {
			t.Errorf("%d tries in a minute", tries)
		}
		g.open()
		for range 10 {
			if err := g.enter(); err != nil {
				t.Error(err)
			}
		}
		g.judge(&pgconn.PgError{Code: "53100"})
		if err := g.enter(); err == nil {
			t.Error("a full disk keeps nobody away")
		}
		time.Sleep(2 * retryEvery)
		if err := g.enter(); err != nil {
			t.Error(err)
		}
		g.judge(nil)
		if err := g.enter(); err != nil {
			t.Error(err)
		}
	})
}
