package account_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

var pepper = bytes.Repeat([]byte("pepper.."), 4)

// world is accounts on a store, with a clock that stands still and a log that is
// searched for secrets when the test is over.
type world struct {
	testing.TB
	clock *testkit.Clock
	open  func() *faulty // one store more on the same database
	store *faulty        // of the first node
	*account.Accounts
	log *logBuffer

	mu      sync.Mutex
	secrets []string
}

// everywhere runs a test on every database.
func everywhere(t *testing.T, test func(w *world), changes ...func(*account.Config)) {
	t.Helper()
	for _, place := range []string{"memory", "postgres"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, place, changes...))
		})
	}
}

func newWorld(tb testing.TB, place string, changes ...func(*account.Config)) *world {
	tb.Helper()
	w := &world{TB: tb, clock: testkit.NewClock(), log: &logBuffer{}}
	if place == "postgres" {
		url := pgtest.URL(tb)
		w.open = func() *faulty {
			s, err := postgres.Open(context.Background(), postgres.Config{URL: url, Now: w.clock.Now, Conns: 8})
			w.ok(err)
			tb.Cleanup(func() { s.Close() })
			return &faulty{Store: s}
		}
	} else {
		s := testkit.Memory(tb, w.clock.Now)
		w.open = func() *faulty { return &faulty{Store: s} }
	}
	w.Accounts, w.store = w.node(changes...)
	tb.Cleanup(w.searchLog)
	return w
}

// node makes one more node on the same database.
func (w *world) node(changes ...func(*account.Config)) (*account.Accounts, *faulty) {
	w.Helper()
	s := w.open()
	e := testkit.Engine(w, s, w.clock)
	c := account.Config{Engine: e, Pepper: pepper, KeyLifetime: 90 * day, RevokedRetention: 90 * day, RatePerMinute: 600, AnonymousPerMinute: 60,
		Log: slog.New(slog.NewJSONHandler(w.log, nil)), Elapsed: w.clock.Monotonic,
		RequestID: func(context.Context) string { return "the-request" }}
	for _, change := range changes {
		change(&c)
	}
	a, err := account.New(c)
	w.ok(err)
	return a, s
}

const day = 24 * time.Hour

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// kept notes what must not be found in the log.
func (w *world) kept(i account.Issued) account.Issued {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, secret := range []string{i.Secret, i.CallbackSecret} {
		if secret != "" {
			w.secrets = append(w.secrets, secret)
		}
	}
	return i
}

// client makes a client.
func (w *world) client() string {
	w.Helper()
	c, err := w.CreateClient(w.Context(), "")
	w.ok(err)
	return c.ID
}

// keyed makes a client with its first key.
func (w *world) keyed() account.Issued {
	w.Helper()
	i, err := w.CreateKey(w.Context(), w.client(), nil, false, "")
	w.ok(err)
	return w.kept(i)
}

// by is who shows the key.
func (w *world) by(i account.Issued) *account.Identity {
	w.Helper()
	by, err := w.Authenticate(w.Context(), i.Secret)
	w.ok(err)
	return &by
}

// denied checks why a key is refused, empty for not at all.
func (w *world) denied(err error, want account.Reason) *account.Denied {
	w.Helper()
	var d *account.Denied
	got := account.Reason("")
	if errors.As(err, &d) {
		got = d.Reason
	} else if err != nil {
		w.Fatalf("got the error %v, want a denial (%q)", err, want)
	}
	if got != want {
		w.Fatalf("denied as %q, want %q", got, want)
	}
	return d
}

func (w *world) auth(a *account.Accounts, key string, want account.Reason) {
	w.Helper()
	_, err := a.Authenticate(w.Context(), key)
	w.denied(err, want)
}

func (w *world) fails(err error, kind job.Kind) {
	w.Helper()
	if err == nil || job.KindOf(err) != kind {
		w.Fatalf("got %v (%v), want %v", err, job.KindOf(err), kind)
	}
}

// active lists the keys of a client that are not revoked.
func (w *world) active(clientID string) (ids []string) {
	w.Helper()
	keys, err := w.Keys(w.Context(), clientID, "", 1000)
	w.ok(err)
	for _, k := range keys {
		if k.RevokedAt.IsZero() {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// searchLog proves that no secret was logged (FR-035, FR-054).
func (w *world) searchLog() {
	text := w.log.String()
	for _, secret := range w.secrets {
		for _, part := range []string{secret, secret[len(secret)/2:]} {
			if strings.Contains(text, part) {
				w.Errorf("the log holds a secret:\n%s", text)
			}
		}
	}
}

// crowd runs fn n times at once.
func crowd(n int, fn func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

// faulty counts what is asked of a store and fails when it is told to.
type faulty struct {
	store.Store
	views, updates, puts atomic.Int64
	down                 atomic.Bool // nothing works
	lossy                atomic.Bool // updates are written but answered with an error
	rerun                atomic.Bool // updates run for nothing first
}

var errLost = &job.Error{Kind: job.Unavailable, Op: "store.commit", Msg: "the store is slow"}

func (s *faulty) View(ctx context.Context, fn func(store.Reader) error) error {
	s.views.Add(1)
	if s.down.Load() {
		return errLost
	}
	return s.Store.View(ctx, fn)
}

var errForNothing = errors.New("for nothing")

func (s *faulty) Update(ctx context.Context, fn func(store.Tx) error) error {
	s.updates.Add(1)
	if s.down.Load() {
		return errLost
	}
	if s.rerun.Load() {
		err := s.Store.Update(ctx, func(tx store.Tx) error { return errors.Join(fn(tx), errForNothing) })
		if !errors.Is(err, errForNothing) {
			return err
		}
	}
	err := s.Store.Update(ctx, func(tx store.Tx) error { return fn(counting{tx, &s.puts}) })
	if err == nil && s.lossy.Load() {
		return errLost
	}
	return err
}

// counting counts the records that are written.
type counting struct {
	store.Tx
	puts *atomic.Int64
}

func (c counting) PutRecords(records []job.Record) error {
	c.puts.Add(int64(len(records)))
	return c.Tx.PutRecords(records)
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// last returns the last line.
func (b *logBuffer) last() string {
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return lines[len(lines)-1]
}

// records returns all records of a client's keys as they are stored.
func (w *world) records(clientID string) []job.Record {
	w.Helper()
	var found []job.Record
	e := testkit.Engine(w, w.open(), w.clock)
	w.ok(e.ViewRecords(w.Context(), func(r engine.RecordReader) (err error) {
		found, err = r.Records(account.KeyKind, clientID, "", 1000)
		return err
	}))
	return slices.Clone(found)
}
