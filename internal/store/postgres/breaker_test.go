package postgres

import (
	"context"
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

// TestPauses checks the pauses of a caller that waits for a connection: they are bounded, and end
// with its context and as soon as a connection is given back.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{released: make(chan struct{})}
		var longest time.Duration
		for tries := range 200 {
			began := time.Now()
			if !s.awaitRelease(t.Context(), tries) {
				t.Error("a context has ended that has not")
			}
			took := time.Since(began)
			if longest = max(longest, took); took > retryInterval {
				t.Errorf("try %d is made after %s", tries, took)
			}
		}
		if longest < retryInterval/2 {
			t.Errorf("the longest pause is %s", longest)
		}
		began, released := time.Now(), make(chan struct{})
		for range 20 {
			go func() {
				s.awaitRelease(t.Context(), 100)
				released <- struct{}{}
			}()
			synctest.Wait()
			s.released <- struct{}{}
			<-released
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("callers are released after %s", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if s.awaitRelease(ended, 0) {
			t.Error("a context has not ended that has")
		}
	})
}

// TestRecentRefusal: a lasting refusal is remembered for some seconds, whatever else is served, and
// one that a request brings about never is.
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
