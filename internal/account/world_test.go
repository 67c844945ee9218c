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

// world is accounts on a store, with a clock that stands still and a log that is searched for
// secrets when the test is over.
type world struct {
	testing.TB
	clock     *testkit.Clock
	openStore func() *faultyStore // one store more on the same database
	store     *faultyStore        // of the first node
	accounts  *account.Accounts
	log       *logBuffer

	mu      sync.Mutex
	secrets []string
}

// onEveryDatabase runs a test on every database.
func onEveryDatabase(t *testing.T, test func(w *world), changes ...func(*account.Config)) {
	t.Helper()
	for _, database := range []string{"memory", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, database, changes...))
		})
	}
}

func newWorld(tb testing.TB, database string, changes ...func(*account.Config)) *world {
	tb.Helper()
	w := &world{TB: tb, clock: testkit.NewClock(), log: &logBuffer{}}
	if database == "postgres" {
		url := pgtest.URL(tb)
		w.openStore = func() *faultyStore {
			s, err := postgres.Open(context.Background(),
				postgres.Config{URL: url, Now: w.clock.Now, Conns: 8})
			w.noError(err)
			tb.Cleanup(func() { s.Close() })
			return &faultyStore{Store: s}
		}
	} else {
		s := testkit.MemoryStore(tb, w.clock.Now)
		w.openStore = func() *faultyStore { return &faultyStore{Store: s} }
	}
	w.accounts, w.store = w.node(changes...)
	tb.Cleanup(w.searchLog)
	return w
}

// node makes one more node on the same database.
func (w *world) node(changes ...func(*account.Config)) (*account.Accounts, *faultyStore) {
	w.Helper()
	s := w.openStore()
	e := testkit.NewEngine(w, s, w.clock)
	c := account.Config{Engine: e, Pepper: pepper, KeyLifetime: 90 * day,
		RevokedRetention: 90 * day, RatePerMinute: 600, AnonymousPerMinute: 60,
		Log: slog.New(slog.NewJSONHandler(w.log, nil)), Elapsed: w.clock.Monotonic,
		RequestID: func(context.Context) string { return "the-request" }}
	for _, change := range changes {
		change(&c)
	}
	a, err := account.New(c)
	w.noError(err)
	return a, s
}

const day = 24 * time.Hour

func (w *world) noError(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// guardSecrets notes what must not be found in the log.
func (w *world) guardSecrets(i account.Issued) account.Issued {
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
	c, err := w.accounts.CreateClient(w.Context(), "")
	w.noError(err)
	return c.ID
}

// clientWithKey makes a client with its first key.
func (w *world) clientWithKey() account.Issued {
	w.Helper()
	i, err := w.accounts.CreateKey(w.Context(), w.client(), nil, false, "")
	w.noError(err)
	return w.guardSecrets(i)
}

// identity is who shows the key.
func (w *world) identity(i account.Issued) *account.Identity {
	w.Helper()
	by, err := w.accounts.Authenticate(w.Context(), i.Secret)
	w.noError(err)
	return &by
}

// wantDenied checks why a key is refused, empty for not at all.
func (w *world) wantDenied(err error, want account.Reason) *account.Denied {
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

func (w *world) wantAuth(a *account.Accounts, key string, want account.Reason) {
	w.Helper()
	_, err := a.Authenticate(w.Context(), key)
	w.wantDenied(err, want)
}

func (w *world) wantKind(err error, kind job.Kind) {
	w.Helper()
	if err == nil || job.KindOf(err) != kind {
		w.Fatalf("got %v (%v), want %v", err, job.KindOf(err), kind)
	}
}

// active lists the keys of a client that are not revoked.
func (w *world) active(clientID string) (ids []string) {
	w.Helper()
	keys, err := w.accounts.Keys(w.Context(), clientID, "", 1000)
	w.noError(err)
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

// runConcurrently runs fn n times at once.
func runConcurrently(n int, fn func(i int)) {
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

// faultyStore counts the calls of a store and fails on demand.
type faultyStore struct {
	store.Store
	views, updates, puts atomic.Int64
	unavailable          atomic.Bool  // nothing works
	loseAnswers          atomic.Bool  // updates are written but answered with an error
	rerun                atomic.Bool  // updates run for nothing first
	failRead             atomic.Int64 // the number of the next read of records that fails, if any
}

var errLost = &job.Error{Kind: job.Unavailable, Op: "store.commit", Msg: "the store is slow"}

func (s *faultyStore) View(ctx context.Context, fn func(store.Reader) error) error {
	s.views.Add(1)
	if s.unavailable.Load() {
		return errLost
	}
	return s.Store.View(ctx, func(r store.Reader) error {
		return fn(failingReader{r, &s.failRead})
	})
}

// failingReader fails one of its reads of records.
type failingReader struct {
	store.Reader
	left *atomic.Int64
}

func (r failingReader) Records(s store.RecordSelector) ([]job.Record, error) {
	if r.left.Add(-1) == 0 {
		return nil, errLost
	}
	return r.Reader.Records(s)
}

var errDiscarded = errors.New("for nothing")

func (s *faultyStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	s.updates.Add(1)
	if s.unavailable.Load() {
		return errLost
	}
	if s.rerun.Load() {
		err := s.Store.Update(ctx, func(tx store.Tx) error {
			return errors.Join(fn(tx), errDiscarded)
		})
		if !errors.Is(err, errDiscarded) {
			return err
		}
	}
	err := s.Store.Update(ctx, func(tx store.Tx) error { return fn(countingTx{tx, &s.puts}) })
	if err == nil && s.loseAnswers.Load() {
		return errLost
	}
	return err
}

// countingTx counts the records that are written.
type countingTx struct {
	store.Tx
	puts *atomic.Int64
}

func (c countingTx) Apply(changes store.Changes) error {
	c.puts.Add(int64(len(changes.Records)))
	return c.Tx.Apply(changes)
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
	e := testkit.NewEngine(w, w.openStore(), w.clock)
	w.noError(e.ViewRecords(w.Context(), func(r engine.RecordReader) (err error) {
		found, err = r.Records(account.KeyKind, clientID, "", 1000)
		return err
	}))
	return slices.Clone(found)
}
