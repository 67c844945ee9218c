package account_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// setLimits sets both limits of a client; nil takes one back.
func (w *world) setLimits(client string, rate, quota *int) {
	w.Helper()
	w.noError(w.accounts.SetLimits(w.Context(), client, func(l *account.OwnLimits) {
		*l = account.OwnLimits{RatePerMinute: rate, QuotaPerDay: quota}
	}, func(engine.RecordWriter, account.OwnLimits, account.OwnLimits) error { return nil }))
}

// ask presents a key to a node until n requests were granted or one is refused, and returns how
// many were granted.
func (w *world) ask(a *account.Accounts, key string, n int) (granted int, refusal string) {
	w.Helper()
	for range n {
		by, err := a.Authenticate(w.Context(), key)
		w.noError(err)
		v, err := a.Allow(w.Context(), by)
		w.noError(err)
		if !v.Allowed {
			return granted, v.Limit
		}
		granted++
	}
	return granted, ""
}

// The limits of one client's own hold where the store failed after the key was read and before they
// were.
func TestOwnLimitsBesideAFailingStore(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(w *world) {
		i, rate := w.clientWithKey(), 3
		w.setLimits(i.Key.ClientID, &rate, nil)
		other, s := w.node()
		s.failRead.Store(2)
		_, err := other.Authenticate(w.Context(), i.Secret)
		w.wantKind(err, job.Unavailable)
		if n, limit := w.ask(other, i.Secret, 50); n != rate || limit != "per minute" {
			w.Errorf("granted %d, then %q", n, limit)
		}
	})
}

// AD-053: limits of one client's own take the place of the settings', on every node within a
// second, count what was used before, and can be taken back.
func TestOwnLimits(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(w *world) {
		other, _ := w.node(limits(10, 0, 1))
		i, unlimited := w.clientWithKey(), w.clientWithKey()
		client := i.Key.ClientID
		want := func(step string, a *account.Accounts, key string, n int, refusal string) {
			w.Helper()
			if got, limit := w.ask(a, key, 50); got != n || limit != refusal {
				w.Errorf("%s: granted %d, then %q; want %d, then %q", step, got, limit, n, refusal)
			}
		}
		want("the settings'", other, i.Secret, 10, "per minute")
		rate, quota, none := 14, 17, 0
		w.setLimits(client, &rate, nil)
		w.setLimits(unlimited.Key.ClientID, &none, nil)
		want("here at once", w.accounts, i.Secret, 4, "per minute")
		want("no limit", w.accounts, unlimited.Secret, 50, "")
		want("elsewhere not yet", other, i.Secret, 0, "per minute")
		w.clock.Advance(time.Second)
		want("used up by both", other, i.Secret, 0, "per minute")
		w.setLimits(client, &rate, &quota)
		w.clock.Advance(time.Minute)
		want("all of the next minute", other, i.Secret, 14, "per minute")
		w.clock.Advance(time.Minute)
		want("the rest of the day", w.accounts, i.Secret, 3, "per day")
		s, err := w.accounts.Status(w.Context(), client)
		w.noError(err)
		if s.Limits != (account.Limits{RatePerMinute: 14, QuotaPerDay: 17}) || s.QuotaUsed != 17 ||
			s.RateUsed != 3 || *s.Own.QuotaPerDay != 17 {
			w.Errorf("got %+v", s)
		}
		w.setLimits(client, nil, nil)
		w.clock.Advance(time.Second)
		want("the settings' again", other, i.Secret, 7, "per minute")
		w.clock.Advance(24 * time.Hour)
		if s, err = w.accounts.Status(w.Context(), client); err != nil || s.RateUsed != 0 ||
			s.Own != (account.OwnLimits{}) || s.Limits.RatePerMinute != 10 {
			w.Errorf("the next day: %+v, %v", s, err)
		}
	}, limits(10, 0, 1))
}

// AD-053: clients are listed by pages, with what is no secret of their keys, and the active one is
// among these however many there were.
func TestStatuses(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(w *world) {
		i := w.clientWithKey()
		client := i.Key.ClientID
		for range 21 {
			var err error
			by := account.Identity{ClientID: client, KeyID: i.Key.ID}
			i, err = w.accounts.CreateKey(w.Context(), client, &by, true, "")
			w.noError(err)
			w.guardSecrets(i)
			w.clock.Advance(time.Second)
		}
		more := []string{w.client(), w.client()}
		var seen []string
		after := ""
		for range 3 {
			page, err := w.accounts.Statuses(w.Context(), after, 1)
			w.noError(err)
			if len(page) != 1 {
				w.Fatalf("got %+v", page)
			}
			after = page[0].ID
			seen = append(seen, after)
		}
		if page, err := w.accounts.Statuses(w.Context(), after, 1); err != nil || len(page) != 0 {
			w.Errorf("behind the last: %v, %v", page, err)
		}
		for _, id := range append(more, client) {
			found := 0
			for _, s := range seen {
				if s == id {
					found++
				}
			}
			if found != 1 {
				w.Errorf("%s was listed %d times in %v", id, found, seen)
			}
		}
		s, err := w.accounts.Status(w.Context(), client)
		w.noError(err)
		if len(s.Keys) != 21 || !s.MoreKeys || s.Keys[20].ID != i.Key.ID ||
			s.Keys[20].State(s.At) != account.KeyActive ||
			s.Keys[0].State(s.At) != account.KeyRevoked {
			w.Errorf("got %+v", s)
		}
		w.clock.Advance(91 * day)
		s, err = w.accounts.Status(w.Context(), client)
		w.noError(err)
		if last := s.Keys[len(s.Keys)-1]; last.State(s.At) != account.KeyExpired {
			w.Errorf("got %+v", last)
		}
		_, err = w.accounts.Status(w.Context(), "nobody")
		w.wantKind(err, job.NotFound)
	})
}

// AD-053: an operator revokes any key, which other nodes refuse within a second.
func TestRevokeAny(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(w *world) {
		other, _ := w.node()
		i, stranger := w.clientWithKey(), w.client()
		recorded := 0
		revoke := func(client, key string) error {
			return w.accounts.RevokeAny(w.Context(), client, key, func(engine.RecordWriter) error {
				recorded++
				return nil
			})
		}
		w.wantAuth(other, i.Secret, "")
		for _, wrong := range [][2]string{{stranger, i.Key.ID}, {"nobody", i.Key.ID},
			{i.Key.ClientID, stranger}, {i.Key.ClientID, "none"}} {
			w.wantKind(revoke(wrong[0], wrong[1]), job.NotFound)
		}
		w.wantAuth(w.accounts, i.Secret, "")
		for range 2 {
			w.noError(revoke(i.Key.ClientID, i.Key.ID))
		}
		w.wantAuth(w.accounts, i.Secret, account.Disabled)
		w.clock.Advance(time.Second)
		w.wantAuth(other, i.Secret, account.Disabled)
		if keys := w.active(i.Key.ClientID); recorded != 1 || len(keys) != 0 {
			w.Errorf("recorded %d times, active are %v", recorded, keys)
		}
	})
}
