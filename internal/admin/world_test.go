package admin_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// readToken is the token that only reads.
const readToken = "reader"

// pepper is the pepper of every node, unless a test is about another one.
var pepper = []byte(strings.Repeat("pepper", 8))

// table is the table of routes with the pages of the console.
func table() []admin.TableRow { return admin.Table(console.New(nil).Pages()...) }

// world is one node behind a real server, on a clock that stands still.
type world struct {
	*testkit.APIServer
	api    *admin.API
	clock  *testkit.Clock
	engine *engine.Engine
	file   string // with the token
	log    *testkit.LogBuffer
}

// onEveryStore runs a test with a node on each database.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		test(t, newWorld(t, p.Store, p.Clock, func(c *admin.Config) { c.Shared = p.Reopen != nil }))
	})
}

// inMemory makes a node on a store in memory.
func inMemory(t *testing.T, change func(*admin.Config)) *world {
	t.Helper()
	p := testkit.InMemory(t)
	return newWorld(t, p.Store, p.Clock, change)
}

// newWorld makes a node on a store.
func newWorld(t testing.TB, s store.Store, clock *testkit.Clock,
	change func(*admin.Config)) *world {
	t.Helper()
	w := &world{clock: clock, engine: testkit.NewEngine(t, s, clock), log: &testkit.LogBuffer{},
		file: filepath.Join(t.TempDir(), "data", "operator.token")}
	log := slog.New(slog.NewJSONHandler(w.log, nil))
	c := admin.Config{Engine: w.engine, Log: log, Now: clock.Now, Elapsed: clock.Monotonic,
		Pepper: pepper, TokenFile: w.file, ReadToken: setting.NewSecret(readToken),
		ReadPayloads:   true,
		AuditRetention: 90 * 24 * time.Hour,
		Settings: []admin.Setting{{Key: "a", Value: "1", Origin: "default", Meaning: "The first."},
			{Key: "b.token", Value: "***", Origin: "flag --set b.token", Meaning: "A secret."}},
		Checks: []httpapi.Check{{Name: "store", Run: w.engine.Ping}}}
	if change != nil {
		change(&c)
	}
	var err error
	if w.api, err = admin.New(c); err != nil {
		t.Fatal(err)
	}
	testkit.Register(t, w.engine, w.api.Schedules.JobType())
	if err := w.api.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.APIServer = testkit.StartServer(t, log, document(t),
		testkit.ProblemReader("urn:millrace:admin:"), w.api.Mount(console.New(w.api)))
	return w
}

// run runs the background work of the node until the test ends.
func (w *world) run(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.api.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, admin.OpenAPI, 1<<20)
}

// do sends a request with a token; "" sends none.
func (w *world) do(t testing.TB, token, method, path, body string,
	header ...string) testkit.Reply {
	t.Helper()
	if token != "" {
		header = append(header, "Authorization", "Bearer "+token)
	}
	return w.Do(t, method, path, body, header...)
}

// get sends a GET as the operator and decodes the answer.
func get[T any](t testing.TB, w *world, path string) T {
	t.Helper()
	return testkit.DecodeReply[T](t,
		w.do(t, w.api.Token(), "GET", path, "").WantStatus(t, 200))
}

// entry is an entry of the audit as it is answered.
type entry struct {
	At                               time.Time
	Actor, Action, Target, Remote    string
	Before, After, Refused, Searched json.RawMessage
	RequestID                        string `json:"request_id"`
}

// entries is a page of the audit.
type entries struct {
	Items      []entry
	NextCursor *string    `json:"next_cursor"`
	SearchedTo *time.Time `json:"searched_to"`
}

// audit returns the first page of the audit with a query.
func (w *world) audit(t testing.TB, query string) entries {
	t.Helper()
	return get[entries](t, w, "/admin/v1/audit"+query)
}

// actions returns the actions of the entries, the oldest first.
func (w *world) actions(t testing.TB) (all []string) {
	t.Helper()
	for _, e := range w.audit(t, "?limit=500").Items {
		all = append([]string{e.Action}, all...)
	}
	return all
}

// code makes a one-time code.
func (w *world) code(t testing.TB) string {
	t.Helper()
	return testkit.DecodeReply[struct{ Code string }](t, w.do(t, w.api.Token(), "POST",
		"/admin/v1/login-codes", "").WantStatus(t, 201)).Code
}

// form posts a form of the console.
func (w *world) form(t testing.TB, path, body string, header ...string) testkit.Reply {
	t.Helper()
	return w.Do(t, "POST", path, body, append([]string{"Content-Type",
		"application/x-www-form-urlencoded"}, header...)...)
}

// login logs in with a form and returns the cookie.
func (w *world) login(t testing.TB, body string) *http.Cookie {
	t.Helper()
	r := w.form(t, "/console/login", body).WantStatus(t, 303)
	cookies := (&http.Response{Header: r.Header}).Cookies()
	if len(cookies) != 1 || r.Header.Get("Location") != "/console" {
		t.Fatalf("got %v", r.Header)
	}
	return cookies[0]
}

// with returns the header of a session.
func with(c *http.Cookie) []string { return []string{"Cookie", c.Name + "=" + c.Value} }
