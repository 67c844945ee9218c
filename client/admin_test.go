package client_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/testkit"
)

// serveAdmin starts a real admin API whose exchanges are checked by its document. It returns the
// API and the way to make clients with a token.
func serveAdmin(t *testing.T, change func(*admin.Config)) (*admin.API,
	func(token string) *client.Admin) {
	t.Helper()
	return serveAdminOn(t, testkit.InMemory(t), change)
}

// serveAdminOn is serveAdmin with a database.
func serveAdminOn(t *testing.T, p testkit.Database, change func(*admin.Config)) (*admin.API,
	func(token string) *client.Admin) {
	t.Helper()
	e := testkit.NewEngine(t, p.Store, p.Clock)
	c := admin.Config{Engine: e, Log: slog.New(slog.DiscardHandler), Now: p.Clock.Now,
		Elapsed: p.Clock.Monotonic, Pepper: []byte(strings.Repeat("p", 32)),
		TokenFile: filepath.Join(t.TempDir(), "operator.token"),
		ReadToken: setting.NewSecret("reader"), AuditRetention: time.Hour,
		Checks: []httpapi.Check{{Name: "store", Run: e.Ping}}}
	for i := range 1200 { // three pages
		c.Settings = append(c.Settings, admin.Setting{Key: fmt.Sprintf("key%04d", i),
			Value: "v", Origin: "default", Meaning: "One of many."})
	}
	if change != nil {
		change(&c)
	}
	api, err := admin.New(c)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Register(t, e, api.Schedules.JobType())
	if err := api.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := testkit.StartServer(t, c.Log, testkit.ReadDocument(t, admin.OpenAPI, 1<<20),
		testkit.ProblemReader("urn:millrace:admin:"), api.Mount(console.New(api)))
	return api, func(token string) *client.Admin {
		made, err := client.New(client.Config{BaseURL: s.URL, Token: token, HTTPClient: s.Client})
		if err != nil {
			t.Fatal(err)
		}
		return made.Admin()
	}
}

// TestAdmin goes through all calls of operators.
func TestAdmin(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, nil)
	former := api.Token()
	operator, ctx := with(former).WithActor("alice"), t.Context()
	code, err := operator.CreateLoginCode(ctx)
	if err != nil || code.Path != "/console/login?code="+code.Code ||
		!code.ExpiresAt.Equal(testkit.StartTime.Add(15*time.Minute)) {
		t.Errorf("got %+v, %v", code, err)
	}
	token, err := operator.RotateToken(ctx)
	if err != nil || token != api.Token() || token == former {
		t.Errorf("got %q, %v", token, err)
	}
	if _, err := operator.Health(ctx); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("the former token: %v", err)
	}
	reader := with("reader").WithActor("bob")
	var refused *client.Error
	if _, err := reader.RotateToken(ctx); !errors.As(err, &refused) ||
		refused.Code != client.AdminCodeReadOnly || !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("AD-005 got %v", err)
	}
	if h, err := reader.Health(ctx); err != nil || !h.OK || len(h.Components) != 1 ||
		h.Components[0].Name != "store" || h.Components[0].State != "ok" {
		t.Errorf("AD-062 got %+v, %v", h, err)
	}
	entries := mustCollect(t, reader.Audit(ctx, client.AdminAuditFilter{PageSize: 1}))
	got := ""
	for _, e := range entries {
		got += e.Actor + " " + e.Action + ","
	}
	const want = "read:bob token.rotate,operator:alice token.rotate,operator:alice login.create,"
	if got != want || *entries[0].RefusalCode != client.AdminCodeReadOnly || entries[1].RefusalCode != nil ||
		string(entries[1].Before) != "null" {
		t.Errorf("AD-006 got %s, %+v", got, entries)
	}
	for _, f := range []client.AdminAuditFilter{{Action: "login.create"}, {Target: "login"},
		{From: testkit.StartTime, To: testkit.StartTime.Add(time.Microsecond), Target: "login"}} {
		if n := len(mustCollect(t, reader.Audit(ctx, f))); n != 1 {
			t.Errorf("AD-006 %+v: got %d", f, n)
		}
	}
	if n := len(mustCollect(t, reader.Audit(ctx,
		client.AdminAuditFilter{To: testkit.StartTime}))); n != 0 {
		t.Errorf("AD-006 got %d from before the start", n)
	}
	if all := mustCollect(t, reader.Settings(ctx)); len(all) != 1200 ||
		all[1199].Key != "key1199" || all[0].Description != "One of many." {
		t.Errorf("AD-062 got %d settings", len(all))
	}
}

// A token of the settings is not rotated, and a rotation is not tried again.
func TestAdminRotation(t *testing.T) {
	t.Parallel()
	_, with := serveAdmin(t, func(c *admin.Config) { c.Token = setting.NewSecret("set") })
	if _, err := with("set").RotateToken(t.Context()); !errors.Is(err, client.ErrConflict) {
		t.Errorf("got %v", err)
	}
	requests := 0
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer refusing.Close()
	c, err := client.New(client.Config{BaseURL: refusing.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Admin().RotateToken(t.Context())
	var failed *client.Error
	if !errors.As(err, &failed) || !failed.Uncertain || requests != 1 {
		t.Errorf("%d requests, %v", requests, err)
	}
}
