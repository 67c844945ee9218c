package account_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/account"
)

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	t.Run("FR-012 FR-015 FR-035 G-FR-11 every refusal says why, and to the log for whom",
		func(t *testing.T) {
			onEveryDatabase(t, func(w *world) {
				i, gone := w.clientWithKey(), w.clientWithKey()
				w.noError(w.accounts.RevokeKey(w.Context(), *w.identity(gone), gone.Key.ID))
				old := w.clientWithKey()
				for _, c := range []struct {
					key    string
					want   account.Reason
					client string
					id     string
				}{
					{"", account.Missing, "", ""},
					{"?", account.Malformed, "", ""},
					{i.Secret[:len(i.Secret)-1], account.Malformed, "", ""},
					{account.UnknownToken(), account.Unknown, "", ""},
					{account.ForgeToken(i.Secret), account.Unknown, i.Key.ClientID, i.Key.ID},
					{gone.Secret, account.Disabled, gone.Key.ClientID, gone.Key.ID},
					{old.Secret, account.Expired, old.Key.ClientID, old.Key.ID},
				} {
					if c.want == account.Expired {
						w.clock.Advance(90 * day)
					}
					_, err := w.accounts.Authenticate(w.Context(), c.key)
					d := w.wantDenied(err, c.want)
					if d.ClientID != c.client || d.KeyID != c.id {
						w.Errorf("%s: got %+v", c.want, *d)
					}
					var line map[string]any
					w.noError(json.Unmarshal([]byte(w.log.last()), &line))
					if line["reason"] != string(c.want) || line["level"] != "WARN" ||
						line["request_id"] != "the-request" {
						w.Errorf("%s: logged %v", c.want, line)
					}
					if got, _ := line["client_id"].(string); got != c.client {
						w.Errorf("%s: logged the client %q, want %q", c.want, got, c.client)
					}
					if c.key != "" && c.key != "?" &&
						(strings.Contains(w.log.String(), c.key) ||
							strings.Contains(err.Error(), c.key)) {
						w.Errorf("%s: the text has the key", c.want)
					}
				}
			})
		})
	t.Run("FR-028 a key in the header lets in", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			w.wantAuth(w.accounts, account.Bearer([]string{"Bearer " + i.Secret}), "")
			w.wantAuth(w.accounts, account.Bearer([]string{i.Secret}), account.Malformed)
			w.wantAuth(w.accounts, account.Bearer([]string{"Basic " + i.Secret}), account.Malformed)
		})
	})
	t.Run("FR-054 the store holds no key", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			records := w.records(i.Key.ClientID)
			if len(records) != 1 {
				w.Fatalf("there are %d records", len(records))
			}
			for part := range strings.SplitSeq(i.Secret, "_") {
				if len(part) > 32 && bytes.Contains(records[0].Body, []byte(part)) {
					w.Errorf("the store has %s", records[0].Body)
				}
			}
			wrong, _ := w.node(func(c *account.Config) {
				c.Pepper = append([]byte("another "), pepper...)
			})
			// a copy of the store is of no use without the pepper
			w.wantAuth(wrong, i.Secret, account.Unknown)
		})
	})
	t.Run("FR-249 keys survive a restart", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			other, _ := w.node()
			w.wantAuth(other, i.Secret, "")
		})
	})
}

func TestAuthenticateCost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	i := w.clientWithKey()
	t.Run("FR-012 what is no key costs no look into the store", func(t *testing.T) {
		before := w.store.views.Load()
		for _, key := range []string{"", "x", i.Secret + "x", i.Secret[:20],
			strings.Repeat("x", 1<<20)} {
			if _, err := w.accounts.Authenticate(t.Context(), key); err == nil {
				t.Errorf("%.100q was taken", key)
			}
		}
		if n := w.store.views.Load() - before; n != 0 {
			t.Errorf("%d looks", n)
		}
	})
	t.Run("a crowd with one key shares a look", func(t *testing.T) {
		before := w.store.views.Load()
		for range 3 {
			w.clock.Advance(time.Second)
			runConcurrently(64, func(int) {
				if _, err := w.accounts.Authenticate(t.Context(), i.Secret); err != nil {
					t.Error(err)
				}
			})
		}
		if n := w.store.views.Load() - before; n != 3 {
			t.Errorf("%d looks in 3 seconds", n)
		}
	})
	t.Run("unknown keys are not held", func(t *testing.T) {
		before, _ := w.accounts.CacheSize()
		runConcurrently(256, func(int) {
			_, _ = w.accounts.Authenticate(t.Context(), account.UnknownToken())
		})
		if keys, reads := w.accounts.CacheSize(); keys != before || reads != 0 {
			t.Errorf("%d keys are held, %d before; %d reads", keys, before, reads)
		}
	})
	t.Run("who goes away waits for nothing", func(t *testing.T) {
		w.clock.Advance(time.Second)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.accounts.Authenticate(ended, i.Secret); err == nil {
			t.Error("it was answered although the store was not read")
		}
		w.wantAuth(w.accounts, i.Secret, "")
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	t.Run("G-FR-30 another pepper is noticed", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			wrong, _ := w.node(func(c *account.Config) {
				c.Pepper = append([]byte("another "), pepper...)
			})
			w.noError(wrong.Check(w.Context())) // who only asks binds nothing
			runConcurrently(4, func(int) {
				if err := w.accounts.Bind(w.Context()); err != nil {
					w.Error(err)
				}
			})
			for name, fails := range map[string]func(context.Context) error{"check": wrong.Check,
				"bind": wrong.Bind} {
				if err := fails(w.Context()); !errors.Is(err, account.ErrPepper) {
					w.Errorf("%s: got %v", name, err)
				}
			}
			w.noError(w.accounts.Check(w.Context()))
		})
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	good := w.accounts.Config
	good.Pepper = pepper
	for name, change := range map[string]func(*account.Config){
		"no engine":          func(c *account.Config) { c.Engine = nil },
		"no clock":           func(c *account.Config) { c.Elapsed = nil },
		"short pepper":       func(c *account.Config) { c.Pepper = pepper[1:][:31] },
		"negative lifetime":  func(c *account.Config) { c.KeyLifetime = -1 },
		"negative retention": func(c *account.Config) { c.RevokedRetention = -1 },
		"no limit":           func(c *account.Config) { c.RatePerMinute = 0 },
		"no anonymous limit": func(c *account.Config) { c.AnonymousPerMinute = 0 },
		"negative quota":     func(c *account.Config) { c.QuotaPerDay = -1 },
	} {
		c := good
		change(&c)
		if _, err := account.New(c); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := account.New(good); err != nil {
		t.Error(err)
	}
}
