package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// clientItem is a client as it is answered.
type clientItem struct {
	ID   string
	Keys []struct {
		ID, State string
		RevokedAt *time.Time `json:"revoked_at"`
	}
	MoreKeys bool `json:"more_keys"`
	Jobs     struct {
		Count   *int
		AtLeast *int `json:"at_least"`
	}
	Rate      *int     `json:"rate_limit_per_minute"`
	RateUsed  *int     `json:"rate_used"`
	Quota     *int     `json:"quota_per_day"`
	QuotaUsed *int     `json:"quota_used"`
	OwnLimits []string `json:"own_limits"`
}

// accounts returns the accounts of the node.
func (w *jobsWorld) accounts() *account.Accounts {
	for _, c := range w.contracts {
		if c.Accounts != nil {
			return c.Accounts
		}
	}
	return nil
}

// key makes the first key of the client.
func (w *jobsWorld) key(t *testing.T) account.Issued {
	t.Helper()
	i, err := w.accounts().CreateKey(t.Context(), w.client, nil, false, "")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// own submits jobs of ForgeRun that the client has.
func (w *jobsWorld) own(t *testing.T, n int) {
	t.Helper()
	batch := make([]engine.Submission, n)
	for i := range batch {
		batch[i] = engine.Submission{Job: job.Job{Owner: w.client, Kind: "EXECUTE",
			ID: job.ID{JobType: "forgerun", Key: fmt.Sprint(i)}, Queue: "default",
			Lease: time.Minute}}
	}
	if _, err := w.engine.Submit(t.Context(), engine.Unique, batch); err != nil {
		t.Fatal(err)
	}
}

// set sends a change of the client's limits.
func (w *jobsWorld) set(t *testing.T, token, body string) testkit.Reply {
	t.Helper()
	return w.do(t, token, "PATCH", "/admin/v1/clients/"+w.client, body, "Content-Type",
		"application/json")
}

// AD-053: operators list clients in pages, with keys without their secrets, jobs, and what is used
// of rate and quota.
func TestClients(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		key := w.key(t)
		w.own(t, 3)
		for range 2 {
			if _, err := w.accounts().CreateClient(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		w.set(t, w.api.Token(), `{"quota_per_day":500}`).WantStatus(t, 200)
		for range 3 {
			by, err := w.accounts().Authenticate(t.Context(), key.Secret)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.accounts().Allow(t.Context(), by); err != nil {
				t.Fatal(err)
			}
		}
		seen, query := map[string]clientItem{}, "?limit=2"
		for range 2 {
			reply := w.do(t, readToken, "GET", "/admin/v1/clients"+query, "").WantStatus(t, 200)
			for _, secret := range []string{key.Secret, key.CallbackSecret, "digest"} {
				if strings.Contains(reply.Body, secret) {
					t.Errorf("AD-053 a secret is shown: %s", reply.Body)
				}
			}
			page := testkit.DecodeReply[listOf[clientItem]](t, reply)
			for _, c := range page.Items {
				seen[c.ID] = c
			}
			if page.NextCursor == nil {
				break
			}
			query = "?limit=2&cursor=" + *page.NextCursor
		}
		c := seen[w.client]
		if len(seen) != 3 || len(c.Keys) != 1 || c.Keys[0].ID != key.Key.ID ||
			c.Keys[0].State != "active" || c.Jobs.Count == nil || *c.Jobs.Count != 3 ||
			*c.Rate != 1000 || *c.RateUsed < 3 || *c.Quota != 500 || *c.QuotaUsed < 3 ||
			*c.QuotaUsed > 3+8 || strings.Join(c.OwnLimits, " ") != "quota_per_day" {
			t.Errorf("AD-053 got %+v of %d", c, len(seen))
		}
		for _, query := range []string{"?limit=0", "?cursor=x", "?text=x"} {
			w.do(t, readToken, "GET", "/admin/v1/clients"+query, "").WantError(t, 400,
				"VALIDATION_ERROR")
		}
		w.do(t, readToken, "GET", "/admin/v1/clients/nobody", "").WantError(t, 404, "NOT_FOUND")
	})
}

// AD-053: the list counts so many jobs of a client as its page can pay for.
func TestClientsOfManyJobs(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.own(t, 1001)
		one := get[clientItem](t, w.world, "/admin/v1/clients/"+w.client)
		all := get[listOf[clientItem]](t, w.world, "/admin/v1/clients").Items
		if *one.Jobs.Count != 1001 || len(all) != 1 || all[0].Jobs.Count != nil ||
			*all[0].Jobs.AtLeast != 200 {
			t.Errorf("AD-053 got %+v and %+v", one, all)
		}
	})
}

// AD-053, G-AD-04: limits of a client and the revocation of a key, each with its entry of the
// audit; the read token changes nothing.
func TestClientChanges(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		key, token := w.key(t), w.api.Token()
		revoke := "/admin/v1/clients/" + w.client + "/keys/" + key.Key.ID + "/revoke"
		w.set(t, readToken, `{"quota_per_day":1}`).WantError(t, 403, "READ_ONLY")
		w.do(t, readToken, "POST", revoke, "").WantError(t, 403, "READ_ONLY")
		for _, body := range []string{`{}`, `[]`, `{"quota_per_day":-1}`, `{"quota_per_day":"5"}`,
			`{"rate_limit_per_minute":1.5}`, `{"rate_limit_per_minute":1000000001}`,
			`{"quota":1}`} {
			w.set(t, token, body).WantError(t, 400, "VALIDATION_ERROR")
		}
		for _, id := range []string{"nobody", key.Key.ID} {
			path := "/admin/v1/clients/" + id
			w.do(t, token, "PATCH", path, `{"quota_per_day":1}`, "Content-Type",
				"application/json").WantError(t, 404, "NOT_FOUND")
			w.do(t, token, "POST", path+"/keys/"+key.Key.ID+"/revoke", "").WantError(t, 404,
				"NOT_FOUND")
		}
		w.do(t, token, "POST", strings.Replace(revoke, key.Key.ID, w.client, 1), "").WantError(t,
			404, "NOT_FOUND")
		got := testkit.DecodeReply[clientItem](t, w.set(t, token,
			`{"rate_limit_per_minute":1,"quota_per_day":0}`).WantStatus(t, 200))
		if *got.Rate != 1 || got.Quota != nil || got.QuotaUsed != nil || len(got.OwnLimits) != 2 {
			t.Errorf("AD-053 got %+v", got)
		}
		by, err := w.accounts().Authenticate(t.Context(), key.Secret)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			if v, err := w.accounts().Allow(t.Context(), by); err != nil || v.Allowed != (n == 0) {
				t.Errorf("AD-053 request %d under a limit of 1: %+v, %v", n, v, err)
			}
		}
		got = testkit.DecodeReply[clientItem](t, w.set(t, token,
			`{"rate_limit_per_minute":null}`).WantStatus(t, 200))
		if *got.Rate != 1000 || strings.Join(got.OwnLimits, " ") != "quota_per_day" {
			t.Errorf("AD-053 got %+v", got)
		}
		for _, path := range []string{strings.Replace(strings.Replace(revoke, w.client,
			strings.ToUpper(w.client), 1), key.Key.ID, strings.ToUpper(key.Key.ID), 1), revoke} {
			got = testkit.DecodeReply[clientItem](t,
				w.do(t, token, "POST", path, "").WantStatus(t, 200))
		}
		if got.Keys[0].State != "revoked" || got.Keys[0].RevokedAt == nil {
			t.Errorf("AD-053 got %+v", got)
		}
		if _, err := w.accounts().Authenticate(t.Context(), key.Secret); err == nil {
			t.Error("AD-053 the key is still good")
		}
		entries := ""
		for _, e := range w.audit(t, "?target=client:"+w.client).Items {
			if string(e.Refused) == "null" {
				entries = e.Action + string(e.Before) + string(e.After) + " " + entries
			}
		}
		want := `client.set{"rate_limit_per_minute":null,"quota_per_day":null}` +
			`{"rate_limit_per_minute":1,"quota_per_day":0} ` +
			`client.set{"rate_limit_per_minute":1,"quota_per_day":0}` +
			`{"rate_limit_per_minute":null,"quota_per_day":0} ` +
			`client.revoke_keynull{"key":"` + key.Key.ID + `","state":"revoked"} `
		if entries != want {
			t.Errorf("G-AD-04 the audit has %s, want %s", entries, want)
		}
	})
}

// A node without ForgeRun has no clients.
func TestNoClients(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	if got := get[listOf[clientItem]](t, w, "/admin/v1/clients"); len(got.Items) != 0 {
		t.Errorf("got %+v", got)
	}
	w.do(t, w.api.Token(), "GET", "/admin/v1/clients/x", "").WantError(t, 404, "NOT_FOUND",
		"no contract")
}
