package postgres_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// withHost returns a URL with another host beside its own.
func withHost(at, host string) string {
	own := strings.SplitN(strings.SplitN(at, "@", 2)[1], "/", 2)[0]
	return strings.Replace(at, "@"+own, "@"+own+","+host, 1)
}

// TestSilentPrimary: a primary that falls silent under load, on all connections, delays nothing for
// long once its synchronous standby was promoted. What was acknowledged is there, what failed is
// not, but for commits without an answer, and notifications arrive.
func TestSilentPrimary(t *testing.T) {
	t.Parallel()
	primary := outside.NewPostgres(t)
	at := primary.Database("mine")
	s := mustOpen(t, postgres.Config{URL: at}) // so that the standby has the schema
	s.Close()
	standby := primary.Standby()
	primary.Exec("postgres", "ALTER SYSTEM SET synchronous_standby_names='*'",
		"SELECT pg_reload_conf()", "CHECKPOINT")
	s = mustOpen(t, postgres.Config{Conns: 4, URL: withHost(at, standby.Address()) +
		"&target_session_attrs=read-write&connect_timeout=2"})
	listener := listen(t, s)
	stop, answers := make(chan struct{}), make(chan map[string]error)
	go func() { answers <- insertUntil(t, s, stop) }()
	for i := range 50 { // while others insert
		mustInsert(t, s, fmt.Sprint("before", i))
	}
	primary.Freeze()
	standby.Promote()
	promoted := time.Now()
	insert := func(key string) error {
		return s.Update(context.Background(), func(tx store.Tx) error {
			return tx.Apply(store.Changes{Insert: []*job.Job{newJob(key)}})
		})
	}
	for insert("after") != nil {
		if time.Since(promoted) > testkit.WaitTimeout {
			t.Fatal("nothing is inserted any more")
		}
	}
	took := time.Since(promoted)
	close(stop)
	outcomes := <-answers
	all := time.Since(promoted)
	t.Logf("an insert %s after the promotion, all callers have answers after %s", took, all)
	if all > 20*time.Second { // the deadline is 30 s
		t.Errorf("callers waited for %s", all)
	}
	outcomes["before49"], outcomes["after"] = nil, nil
	audit(t, s, outcomes)
	listener.wantNotified(t, mustOpen(t, postgres.Config{URL: standby.URL("mine", "mine")}), 1)
	if all := time.Since(promoted); all > 25*time.Second {
		t.Errorf("nothing was notified for %s", all)
	}
}

// TestSlowServer: what waits for a server goes on waiting for as long as no other server accepts
// writes, also where new connections to it get no answer, and for as long as it accepts some.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (at string, becomeSilent func()){
		"no other host": func(t *testing.T) (string, func()) {
			return silentForNew(t, pgtest.URL(t))
		},
		"another way to the same server": func(t *testing.T) (string, func()) {
			at := pgtest.URL(t)
			u, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			through, becomeSilent := silentForNew(t, at)
			return withHost(through, u.Host), becomeSilent
		},
		"another server beside one that accepts writes": func(t *testing.T) (string, func()) {
			other := outside.NewPostgres(t)
			other.Database("mine")
			return withHost(outside.NewPostgres(t).Database("mine"), other.Address()), func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, becomeSilent := open(t)
			s := mustOpen(t, postgres.Config{URL: at})
			waited := make(chan error)
			if err := s.Update(t.Context(), func(tx store.Tx) error {
				both := s.Update(t.Context(), func(store.Tx) error { return nil })
				becomeSilent()
				if err := errors.Join(both, tx.LockName("name")); err != nil {
					return err
				}
				go func() {
					waited <- s.Update(context.Background(), func(tx store.Tx) error {
						return tx.LockName("name")
					})
				}()
				testkit.WaitUntil(t, "the other one", func() bool {
					inUse, _, _ := s.Pool()
					return inUse == 2
				})
				s.EndReplaced(t.Context())
				return nil
			}); err != nil {
				t.Error(err)
			}
			if err := <-waited; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSilentHost: new connections do not wait for a host that is silent once another one was found.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	at := pgtest.URL(t)
	through, becomeSilent := silentForNew(t, at)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	const timeout = 20 * time.Second
	s := mustOpen(t, postgres.Config{URL: withHost(through, u.Host) +
		"&target_session_attrs=read-write&connect_timeout=20"})
	becomeSilent()
	s.EndReplaced(t.Context())
	asked := time.Now()
	if err := s.Update(t.Context(), func(store.Tx) error { // so that the next has a new connection
		return s.Update(t.Context(), func(store.Tx) error { return nil })
	}); err != nil {
		t.Error(err)
	}
	if took := time.Since(asked); took > timeout/2 {
		t.Errorf("a connection was made after %s", took)
	}
}

// silentForNew returns a URL whose new connections get no answer after becomeSilent, while those
// that there are go on.
func silentForNew(t *testing.T, to string) (at string, becomeSilent func()) {
	var silent atomic.Bool
	over := make(chan struct{})
	at = relayURL(t, to, &storetest.Faults{}, func(net.Conn) bool {
		if silent.Load() {
			<-over
		}
		return !silent.Load()
	})
	t.Cleanup(func() { close(over) })
	return at, func() { silent.Store(true) }
}

// TestEncryptedConnection has a store speak TLS, as it does nowhere else in the tests.
func TestEncryptedConnection(t *testing.T) {
	t.Parallel()
	at := pgtest.URL(t)
	server, err := pgx.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	carry := func(conn net.Conn) {
		defer conn.Close()
		request := make([]byte, 8) // for TLS
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		_, _ = conn.Write([]byte("S"))
		client := tls.Server(conn, &tls.Config{Certificates: certified.TLS.Certificates})
		network, address := pgconn.NetworkAddress(server.Host, server.Port)
		far, err := net.Dial(network, address)
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(far, client); far.Close() }()
		_, _ = io.Copy(client, far)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { carry(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "require")
	u.RawQuery = q.Encode()
	s := mustOpen(t, postgres.Config{URL: u.String()})
	mustInsert(t, s, "a")
	s.EndReplaced(t.Context())
	mustInsert(t, s, "b")
}
