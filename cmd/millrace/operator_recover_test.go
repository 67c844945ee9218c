package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// accountFixture is a data directory with a client that has a key.
type accountFixture struct {
	testing.TB
	settings []string // flags
	loaded   *nodeSettings
	issued   account.Issued
}

func newAccountFixture(tb testing.TB, set ...string) *accountFixture {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "data")
	l := &accountFixture{TB: tb, settings: []string{"--config", os.DevNull, "--set",
		"data_dir=" + dir}}
	flags := map[string]string{"data_dir": dir}
	for _, pair := range set {
		l.settings = append(l.settings, "--set", pair)
		name, value, _ := strings.Cut(pair, "=")
		flags[name] = value
	}
	var err error
	l.loaded, err = loadSettings(config.Sources{File: os.DevNull, Explicit: true, Flags: flags})
	l.noError(err)
	l.withAccounts(func(a *account.Accounts) {
		l.noError(a.Check(tb.Context()))
		c, err := a.CreateClient(tb.Context(), "")
		l.noError(err)
		l.issued, err = a.CreateKey(tb.Context(), c.ID, nil, false, "")
		l.noError(err)
	})
	return l
}

func (l *accountFixture) noError(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// withAccounts runs fn as a server would: it holds the store and keeps what it read.
func (l *accountFixture) withAccounts(fn func(*account.Accounts)) {
	l.Helper()
	pepper, err := account.LoadPepper(l.loaded.PepperFile())
	l.noError(err)
	s, err := openStore(l.Context(), l.process(), l.loaded, func(string, time.Duration, error) {})
	l.noError(err)
	defer s.Close()
	p := l.process()
	e, err := engine.New(engine.Config{Store: s, Node: nodeName(), Random: randomBytes,
		Monotonic: p.Elapsed})
	l.noError(err)
	defer e.Close()
	a, err := account.New(account.Config{Engine: e, Pepper: pepper, KeyLifetime: time.Hour,
		RatePerMinute: 1, AnonymousPerMinute: 1, Elapsed: p.Elapsed})
	l.noError(err)
	fn(a)
}

func (l *accountFixture) process() cli.Process {
	start := time.Now()
	return cli.Process{Now: time.Now, Elapsed: func() time.Duration { return time.Since(start) }}
}

// runRecover runs the command and checks how it ends.
func (l *accountFixture) runRecover(clientID string, code int, message string) (stdout string) {
	l.Helper()
	var out, errs bytes.Buffer
	p := l.process()
	p.Args, p.Stdout, p.Stderr = append([]string{"operator", "recover", clientID}, l.settings...),
		&out, &errs
	if got := run(p); got != code || !strings.Contains(errs.String(), message) {
		l.Fatalf("exit code %d, want %d and %q: %s%s", got, code, message, &out, &errs)
	}
	if code != cli.ExitOK && out.Len() > 0 {
		l.Errorf("it failed but wrote %q", &out)
	}
	return out.String()
}

func (l *accountFixture) wantRefused(a *account.Accounts, key string, want account.Reason) {
	l.Helper()
	_, err := a.Authenticate(context.WithoutCancel(l.Context()), key)
	var d *account.Denied
	if (errors.As(err, &d) && d.Reason == want) || (err == nil && want == "") {
		return
	}
	l.Errorf("got %v, want %q", err, want)
}

// wantEntry fails unless the audit has one entry, which is about a target (AD-006).
func (l *accountFixture) wantEntry(a *account.Accounts, target string) {
	l.Helper()
	err := a.Engine.ViewRecords(l.Context(), func(r engine.RecordReader) error {
		entries, err := r.Records("admin.audit", "", "", 10)
		if err == nil && (len(entries) != 1 ||
			!strings.Contains(string(entries[0].Body), `"target":"`+target+`"`)) {
			l.Errorf("AD-006 the audit has %v", entries)
		}
		return err
	})
	l.noError(err)
}

func TestOperatorRecover(t *testing.T) {
	t.Parallel()
	t.Run("G-FR-03 a locked-out client gets a key", func(t *testing.T) {
		t.Parallel()
		l := newAccountFixture(t)
		client := l.issued.Key.ClientID
		l.withAccounts(func(*account.Accounts) {
			l.runRecover(client, cli.ExitUnable, "must be stopped first")
		})
		key := strings.TrimSuffix(l.runRecover(client, cli.ExitOK,
			"earlier keys of the client are refused"), "\n")
		if strings.ContainsAny(key, " \n") {
			t.Errorf("the key is not alone: %q", key)
		}
		l.withAccounts(func(a *account.Accounts) {
			l.wantRefused(a, key, "")
			l.wantRefused(a, l.issued.Secret, account.Disabled)
			l.wantEntry(a, "client:"+client)
		})
	})
	t.Run("G-FR-03 beside a server on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		l := newAccountFixture(t, "store="+pgtest.URL(t))
		l.withAccounts(func(a *account.Accounts) {
			key := strings.TrimSuffix(l.runRecover(l.issued.Key.ClientID, cli.ExitOK, ""), "\n")
			l.wantRefused(a, key, "")
			l.wantRefused(a, l.issued.Secret, account.Disabled)
		})
	})
	t.Run("what is missing locally", func(t *testing.T) {
		t.Parallel()
		l := newAccountFixture(t)
		client := l.issued.Key.ClientID
		l.runRecover("00000000-0000-4000-8000-000000000000", cli.ExitFailed,
			"there is no such client")

		pepper := l.loaded.PepperFile()
		l.noError(os.Rename(pepper, pepper+".away"))
		l.runRecover(client, cli.ExitUnable, "there is no pepper file")
		if _, err := os.Stat(pepper); err == nil {
			t.Error("it made one")
		}
		l.noError(os.WriteFile(pepper, bytes.Repeat([]byte("x"), 32), 0o600))
		l.runRecover(client, cli.ExitUnable, "the same pepper file")
		l.noError(os.Chmod(pepper, 0o644))
		l.runRecover(client, cli.ExitUnable, "chmod 600")
		l.noError(os.Rename(pepper+".away", pepper))
		// nothing has changed
		l.withAccounts(func(a *account.Accounts) { l.wantRefused(a, l.issued.Secret, "") })

		nowhere := filepath.Join(t.TempDir(), "nowhere")
		l.settings = []string{"--config", os.DevNull, "--set", "data_dir=" + nowhere}
		l.runRecover(client, cli.ExitUnable, "has schema 0")
		if _, err := os.Stat(nowhere); err == nil {
			t.Error("it made a data directory")
		}
		l.settings = []string{"--set", "forgerun.key_lifetime=x"}
		l.runRecover(client, cli.ExitUsage, "forgerun.key_lifetime")
	})
}
