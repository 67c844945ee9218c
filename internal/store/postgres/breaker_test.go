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
		var g breaker
		refusal := errors.New("refused")
		tries := 0
		for range 60 * 1000 { // a minute
			if err := g.allow(); err == nil {
				tries++
				g.trip(refusal)
			} else if !errors.Is(err, refusal) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if tries < 55 || tries > 61 {
			t.Errorf("%d tries in a minute", tries)
		}
		g.reset()
		for range 10 {
			if err := g.allow(); err != nil {
				t.Error(err)
			}
		}
		g.record(&pgconn.PgError{Code: "53100"})
		if err := g.allow(); err == nil {
			t.Error("a full disk keeps nobody away")
		}
		time.Sleep(2 * retryInterval)
		if err := g.allow(); err != nil {
			t.Error(err)
		}
		g.record(nil)
		if err := g.allow(); err != nil {
			t.Error(err)
		}
	})
}

// TestRecentRefusal: a lasting refusal is remembered for some seconds, whatever else is
// served, and one that a request brings about never is.
func TestRecentRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g breaker
		for _, code := range []string{"22021", "23505", "54000", "57014", "40001"} {
			g.record(translate("insert_jobs", &pgconn.PgError{Code: code}))
			if err := g.recent(); err != nil {
				t.Errorf("%s is remembered: %v", code, err)
			}
		}
		g.record(translate("insert_jobs", &pgconn.PgError{Code: "58030"}))
		g.record(nil)
		if err := g.recent(); err == nil {
			t.Error("a disk that fails is forgotten as soon as something is served")
		}
		time.Sleep(5 * time.Second)
		if err := g.recent(); err != nil {
			t.Errorf("it is remembered for too long: %v", err)
		}
	})
}
