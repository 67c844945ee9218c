package account_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

const unknownClientID = "00000000-0000-4000-8000-000000000000"

func TestClients(t *testing.T) {
	t.Parallel()
	t.Run("FR-037 FR-038 each client has an id of its own", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			first, err := w.accounts.CreateClient(w.Context(), "")
			w.noError(err)
			if second := w.client(); second == first.ID {
				w.Error("two clients have one id")
			}
			other, _ := w.node() // as after a restart
			again, err := other.Client(w.Context(), first.ID)
			if err != nil || again != first {
				w.Errorf("got %v, %v, want %v", again, err, first)
			}
		})
	})
	t.Run("FR-039 the same Idempotency-Key gives the same client", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			other, _ := w.node()
			ids := make([]string, 16)
			runConcurrently(len(ids), func(i int) {
				node := w.accounts
				if i%2 == 0 {
					node = other
				}
				c, err := node.CreateClient(w.Context(), "a key\x00of any sort")
				if err != nil {
					w.Error(err)
				}
				ids[i] = c.ID
			})
			for _, id := range ids {
				if id != ids[0] || id == "" {
					w.Fatalf("one Idempotency-Key gave several clients: %v", ids)
				}
			}
			w.clock.Advance(day - time.Second)
			c, err := w.accounts.CreateClient(w.Context(), "a key\x00of any sort")
			if w.noError(err); c.ID != ids[0] {
				w.Error("it was forgotten before 24 hours were over")
			}
			w.clock.Advance(time.Second)
			c, err = w.accounts.CreateClient(w.Context(), "a key\x00of any sort")
			if w.noError(err); c.ID == ids[0] {
				w.Error("G-FR-24: it was kept longer than 24 hours")
			}
		})
	})
	t.Run("FR-046 what is no client is not found", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			for _, id := range []string{"", "x", unknownClientID, "urn:uuid:" + unknownClientID,
				"{" + unknownClientID + "}", strings.ReplaceAll(unknownClientID, "-", ""), "\x00"} {
				_, err := w.accounts.Client(w.Context(), id)
				w.wantKind(err, job.NotFound)
				_, err = w.accounts.CreateKey(w.Context(), id, nil, false, "")
				w.wantKind(err, job.NotFound)
				_, err = w.accounts.Keys(w.Context(), id, "", 10)
				w.wantKind(err, job.NotFound)
				_, err = w.accounts.CallbackSecret(w.Context(), id)
				w.wantKind(err, job.NotFound)
				_, err = w.accounts.Recover(w.Context(), id, nil)
				w.wantKind(err, job.NotFound)
			}
		})
	})
	t.Run("G-FR-65 a valid key on an unknown client is not found", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			_, err := w.accounts.CreateKey(w.Context(), unknownClientID, w.identity(i), true, "")
			w.wantKind(err, job.NotFound)
			_, err = w.accounts.RenewKey(w.Context(), unknownClientID, i.Secret)
			w.wantKind(err, job.NotFound)
		})
	})
	t.Run("G-FR-48 the callback secret comes with the first key", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			text, ok := strings.CutPrefix(i.CallbackSecret, "whsec_")
			raw, err := base64.StdEncoding.DecodeString(text)
			if !ok || err != nil || len(raw) < 24 || len(raw) > 64 {
				w.Fatalf("the secret %q is not of Standard Webhooks", i.CallbackSecret)
			}
			other, _ := w.node()
			for _, node := range []*account.Accounts{w.accounts, w.accounts, other} {
				if got, err := node.CallbackSecret(w.Context(), i.Key.ClientID); err != nil ||
					got != i.CallbackSecret {
					w.Errorf("got %v, not what was shown", err)
				}
			}
			rotated, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, w.identity(i), true,
				"")
			if w.noError(err); w.guardSecrets(rotated).CallbackSecret != "" {
				w.Error("it was shown again")
			}
		})
	})
}

func TestCreateKey(t *testing.T) {
	t.Parallel()
	t.Run("FR-040 FR-042 the first key needs none", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			if !i.Created || i.Secret == "" || i.Key.ID == "" ||
				!i.Key.CreatedAt.Equal(w.clock.Now()) || i.Key.CreatedAt.Location() != time.UTC {
				w.Errorf("got %+v", i.Key)
			}
			if by := w.identity(i); by.ClientID != i.Key.ClientID || by.KeyID != i.Key.ID {
				w.Errorf("the key is that of %+v", by)
			}
			_, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, nil, false, "")
			w.wantDenied(err, account.Missing)
		})
	})
	t.Run("G-FR-03 a client that had a key needs one for ever", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			w.noError(w.accounts.RevokeKey(w.Context(), *w.identity(i), i.Key.ID))
			w.clock.Advance(91 * day)
			_, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, nil, false, "")
			w.wantDenied(err, account.Missing)
			// rotate always needs one
			_, err = w.accounts.CreateKey(w.Context(), w.client(), nil, true, "")
			w.wantDenied(err, account.Missing)
		})
	})
	t.Run("FR-043 G-FR-04 a repeated request shows the key without its secret", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			w.clock.Advance(time.Hour)
			again, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, w.identity(i), false,
				"")
			w.noError(err)
			if again != (account.Issued{Key: i.Key}) {
				w.Errorf("got %+v, want the metadata of %+v", again, i.Key)
			}
		})
	})
	t.Run("FR-044 G-FR-65 rotate replaces the key", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			old := w.clientWithKey()
			next, err := w.accounts.CreateKey(w.Context(), old.Key.ClientID, w.identity(old), true,
				"")
			w.noError(err)
			if w.guardSecrets(next); !next.Created || next.Key.ID == old.Key.ID ||
				next.Secret == old.Secret {
				w.Errorf("got %+v", next.Key)
			}
			w.wantAuth(w.accounts, old.Secret, account.Disabled)
			w.wantAuth(w.accounts, next.Secret, "")
		})
	})
	t.Run("FR-032 another client's key is forbidden", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			own, theirs := w.clientWithKey(), w.clientWithKey()
			for _, rotate := range []bool{false, true} {
				if _, err := w.accounts.CreateKey(w.Context(), theirs.Key.ClientID, w.identity(own),
					rotate, ""); !errors.Is(err, account.ErrForbidden) {
					w.Errorf("got %v", err)
				}
			}
			if _, err := w.accounts.RenewKey(w.Context(), theirs.Key.ClientID,
				own.Secret); !errors.Is(err, account.ErrForbidden) {
				w.Errorf("got %v", err)
			}
			w.wantAuth(w.accounts, theirs.Secret, "")
			w.wantAuth(w.accounts, own.Secret, "")
		})
	})
	t.Run("FR-052 G-FR-27 expiry can be switched off", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			if !i.Key.ExpiresAt.IsZero() {
				w.Errorf("it expires at %v", i.Key.ExpiresAt)
			}
			w.clock.Advance(20 * 365 * day)
			w.wantAuth(w.accounts, i.Secret, "")
		}, func(c *account.Config) { c.KeyLifetime = 0 })
	})
}

func TestCrowds(t *testing.T) {
	t.Parallel()
	t.Run("FR-045 parallel first keys", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			other, _ := w.node()
			client := w.client()
			var made atomic.Int64
			runConcurrently(32, func(n int) {
				node := w.accounts
				if n%2 == 0 {
					node = other
				}
				i, err := node.CreateKey(w.Context(), client, nil, false,
					fmt.Sprint("request ", n%3))
				if err == nil {
					w.guardSecrets(i)
					made.Add(1)
					return
				}
				var d *account.Denied
				if !errors.As(err, &d) || d.Reason != account.Missing { // G-FR-57
					w.Errorf("a loser got %v", err)
				}
			})
			if made.Load() != 1 || len(w.active(client)) != 1 {
				w.Errorf("%d callers got a key, %d are active", made.Load(), len(w.active(client)))
			}
		})
	})
	t.Run("FR-044 FR-047 parallel rotations and renewals leave one key", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			other, _ := w.node()
			i := w.clientWithKey()
			by := w.identity(i)
			var made atomic.Int64
			runConcurrently(32, func(n int) {
				node := w.accounts
				if n%2 == 0 {
					node = other
				}
				var next account.Issued
				var err error
				if n%4 < 2 {
					next, err = node.RenewKey(w.Context(), i.Key.ClientID, i.Secret)
				} else {
					next, err = node.CreateKey(w.Context(), i.Key.ClientID, by, true, "")
				}
				var d *account.Denied
				switch {
				case err == nil:
					w.guardSecrets(next)
					made.Add(1)
				case errors.As(err, &d) && d.Reason == account.Disabled,
					job.IsKind(err, job.Conflict):
				default:
					w.Error(err)
				}
			})
			if made.Load() != 1 || len(w.active(i.Key.ClientID)) != 1 {
				w.Errorf("%d callers got a key, %d are active", made.Load(),
					len(w.active(i.Key.ClientID)))
			}
		})
	})
}

func TestKeyIdempotency(t *testing.T) {
	t.Parallel()
	t.Run("G-FR-24 a repeated rotation rotates once", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			next, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, w.identity(i), true,
				"once")
			w.noError(err)
			again, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID,
				w.identity(w.guardSecrets(next)), true, "once")
			w.noError(err)
			if again != (account.Issued{Key: next.Key}) {
				w.Errorf("got %+v, want the metadata of %+v", again, next.Key)
			}
			_, err = w.accounts.CreateKey(w.Context(), i.Key.ClientID, w.identity(next), false,
				"once")
			if w.wantKind(err, job.Conflict); !errors.Is(err, engine.ErrKeyReused) {
				w.Errorf("got %v", err)
			}
			w.clock.Advance(day)
			third, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, w.identity(next), true,
				"once")
			if w.noError(err); !w.guardSecrets(third).Created {
				w.Error("it was kept longer than 24 hours")
			}
		})
	})
	t.Run("G-FR-24 the key is the client's own", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			for range 2 {
				i, err := w.accounts.CreateKey(w.Context(), w.client(), nil, false, "first")
				if w.noError(err); !w.guardSecrets(i).Created {
					w.Error("another client's request answered this one")
				}
			}
		})
	})
}

func TestRenew(t *testing.T) {
	t.Parallel()
	t.Run("FR-047 renewing replaces the key at once", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			old := w.clientWithKey()
			next, err := w.accounts.RenewKey(w.Context(), old.Key.ClientID, old.Secret)
			w.noError(err)
			w.wantAuth(w.accounts, old.Secret, account.Disabled)
			w.wantAuth(w.accounts, w.guardSecrets(next).Secret, "")
		})
	})
	t.Run("FR-053 G-FR-26 an expired key is refused but can be renewed", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			old := w.clientWithKey()
			w.wantAuth(w.accounts, old.Secret, "")
			w.clock.Advance(90*day - time.Millisecond)
			w.wantAuth(w.accounts, old.Secret, "")
			w.clock.Advance(time.Millisecond) // while it is held in memory
			w.wantAuth(w.accounts, old.Secret, account.Expired)
			next, err := w.accounts.RenewKey(w.Context(), old.Key.ClientID, old.Secret)
			w.noError(err)
			w.wantAuth(w.accounts, w.guardSecrets(next).Secret, "")
			w.wantAuth(w.accounts, old.Secret, account.Disabled)
		})
	})
	t.Run("FR-049 nothing to renew is a conflict", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			other, _ := w.node()
			i := w.clientWithKey()
			w.wantAuth(other, i.Secret, "") // which holds it for a second
			w.noError(w.accounts.RevokeKey(w.Context(), *w.identity(i), i.Key.ID))
			_, err := other.RenewKey(w.Context(), i.Key.ClientID, i.Secret)
			w.wantKind(err, job.Conflict)
			if active := w.active(i.Key.ClientID); len(active) != 0 {
				w.Errorf("the client has the keys %v", active)
			}
			_, err = w.accounts.RenewKey(w.Context(), i.Key.ClientID, i.Secret)
			w.wantDenied(err, account.Disabled)
		})
	})
	t.Run("FR-047 renewing needs a key", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			for key, want := range map[string]account.Reason{"": account.Missing,
				"x":                          account.Malformed,
				account.UnknownToken():       account.Unknown,
				account.ForgeToken(i.Secret): account.Unknown} {
				_, err := w.accounts.RenewKey(w.Context(), i.Key.ClientID, key)
				w.wantDenied(err, want)
			}
		})
	})
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	t.Run("FR-050 FR-051 revoking", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			own, theirs := w.clientWithKey(), w.clientWithKey()
			by := *w.identity(own)
			w.wantKind(w.accounts.RevokeKey(w.Context(), by, unknownClientID), job.NotFound)
			w.wantKind(w.accounts.RevokeKey(w.Context(), by, "x"), job.NotFound)
			if err := w.accounts.RevokeKey(w.Context(), by, theirs.Key.ID); !errors.Is(err,
				account.ErrForbidden) {
				w.Errorf("another client's key: %v", err)
			}
			w.wantAuth(w.accounts, theirs.Secret, "")
			// G-FR-26: itself
			w.noError(w.accounts.RevokeKey(w.Context(), by, strings.ToUpper(own.Key.ID)))
			w.wantAuth(w.accounts, own.Secret, account.Disabled)
			// G-FR-25: of one who was authenticated before
			w.noError(w.accounts.RevokeKey(w.Context(), by, own.Key.ID))
		})
	})
	t.Run("FR-051 a key that was replaced revokes no other", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			old := w.clientWithKey()
			by := *w.identity(old)
			next, err := w.accounts.CreateKey(w.Context(), old.Key.ClientID, &by, true, "")
			w.noError(err)
			w.wantDenied(w.accounts.RevokeKey(w.Context(), by, w.guardSecrets(next).Key.ID),
				account.Disabled)
			_, err = w.accounts.CreateKey(w.Context(), old.Key.ClientID, &by, true, "")
			w.wantDenied(err, account.Disabled)
			w.wantAuth(w.accounts, next.Secret, "")
		})
	})
	t.Run("FR-050 a revocation reaches the other nodes within a second", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			other, _ := w.node()
			i := w.clientWithKey()
			by := w.identity(i)
			w.wantAuth(other, i.Secret, "")
			w.clock.Advance(999 * time.Millisecond)
			w.noError(w.accounts.RevokeKey(w.Context(), *by, i.Key.ID))
			w.wantAuth(w.accounts, i.Secret, account.Disabled) // here at once
			w.clock.Advance(time.Millisecond)
			w.wantAuth(other, i.Secret, account.Disabled)
		})
	})
	t.Run("FR-055 revoked keys are kept for 90 days", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			w.clock.Advance(time.Millisecond)
			next, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, w.identity(i), true, "")
			w.noError(err)
			w.guardSecrets(next)
			w.clock.Advance(90*day - time.Second)
			keys, err := w.accounts.Keys(w.Context(), i.Key.ClientID, "", 10)
			if w.noError(err); len(keys) != 2 || keys[0].ID != i.Key.ID ||
				!keys[0].RevokedAt.Equal(next.Key.CreatedAt) || keys[1] != next.Key {
				w.Errorf("got %+v", keys)
			}
			if page, err := w.accounts.Keys(w.Context(), i.Key.ClientID, keys[0].ID,
				10); err != nil || len(page) != 1 || page[0] != next.Key {
				w.Errorf("after the first: %+v, %v", page, err)
			}
			w.clock.Advance(time.Second)
			keys, err = w.accounts.Keys(w.Context(), i.Key.ClientID, "", 10)
			if w.noError(err); len(keys) != 1 || keys[0] != next.Key {
				w.Errorf("got %+v", keys)
			}
			w.wantAuth(w.accounts, i.Secret, account.Unknown)
		})
	})
}

func TestRecover(t *testing.T) {
	t.Parallel()
	t.Run("G-FR-03 the operator helps a client that is locked out", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			w.noError(w.accounts.RevokeKey(w.Context(), *w.identity(i), i.Key.ID))
			for _, old := range []account.Issued{i, {}} {
				next, err := w.accounts.Recover(w.Context(), i.Key.ClientID, nil)
				w.noError(err)
				if w.guardSecrets(next); !next.Created || next.CallbackSecret != "" {
					w.Errorf("got %+v", next.Key)
				}
				w.wantAuth(w.accounts, next.Secret, "")
				w.wantAuth(w.accounts, i.Secret, account.Disabled)
				if active := w.active(i.Key.ClientID); len(active) != 1 ||
					active[0] != next.Key.ID || active[0] == old.Key.ID {
					w.Errorf("the client has the keys %v", active)
				}
			}
		})
	})
	t.Run("G-FR-48 a client without any key gets its callback secret", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i, err := w.accounts.Recover(w.Context(), w.client(), nil)
			if w.noError(err); w.guardSecrets(i).CallbackSecret == "" {
				w.Error("there is none")
			}
		})
	})
}

func TestKeyFailures(t *testing.T) {
	t.Parallel()
	t.Run("FR-048 a failing store changes nothing", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			i := w.clientWithKey()
			by := w.identity(i)
			w.store.unavailable.Store(true)
			_, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, by, true, "")
			w.wantKind(err, job.Unavailable)
			w.wantKind(w.accounts.RevokeKey(w.Context(), *by, i.Key.ID), job.Unavailable)
			w.store.unavailable.Store(false)
			w.wantAuth(w.accounts, i.Secret, "")
			w.store.unavailable.Store(true)
			_, err = w.accounts.RenewKey(w.Context(), i.Key.ClientID, i.Secret) // the key is held
			w.wantKind(err, job.Unavailable)
			w.clock.Advance(time.Second)
			_, err = w.accounts.Authenticate(w.Context(), i.Secret)
			w.wantKind(err, job.Unavailable)
			w.store.unavailable.Store(false)
			w.wantAuth(w.accounts, i.Secret, "")
			if active := w.active(i.Key.ClientID); len(active) != 1 || active[0] != i.Key.ID {
				w.Errorf("the client has the keys %v", active)
			}
		})
	})
	t.Run("FR-048 a client whose answer was lost can go on", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			w.store.loseAnswers.Store(true)
			_, err := w.accounts.CreateClient(w.Context(), "try again")
			w.wantKind(err, job.Unavailable)
			// reads only: the answer is lost all the same
			_, err = w.accounts.CreateClient(w.Context(), "try again")
			w.wantKind(err, job.Unavailable)
			w.store.loseAnswers.Store(false)
			c, err := w.accounts.CreateClient(w.Context(), "try again")
			w.noError(err)
			w.store.loseAnswers.Store(true)
			i, err := w.accounts.CreateKey(w.Context(), c.ID, nil, false, "")
			w.noError(err)
			next, err := w.accounts.RenewKey(w.Context(), c.ID, w.guardSecrets(i).Secret)
			w.noError(err)
			w.wantAuth(w.accounts, w.guardSecrets(next).Secret, "")
			w.wantAuth(w.accounts, i.Secret, account.Disabled)
			if err := w.accounts.RevokeKey(w.Context(), *w.identity(next),
				next.Key.ID); !job.IsKind(err, job.Unavailable) {
				w.Error(err)
			}
			// it was, and the answer says so
			w.wantAuth(w.accounts, next.Secret, account.Disabled)
		})
	})
	t.Run("FR-044 FR-204 a transaction that runs again", func(t *testing.T) {
		onEveryDatabase(t, func(w *world) {
			w.store.rerun.Store(true)
			i := w.clientWithKey()
			next, err := w.accounts.CreateKey(w.Context(), i.Key.ClientID, w.identity(i), true, "k")
			w.noError(err)
			w.wantAuth(w.accounts, w.guardSecrets(next).Secret, "")
			if active := w.active(i.Key.ClientID); len(active) != 1 || active[0] != next.Key.ID {
				w.Errorf("the client has the keys %v", active)
			}
		})
	})
}
