package forgerun_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

type keyList struct {
	Items []struct {
		KeyID     string     `json:"key_id"`
		CreatedAt time.Time  `json:"created_at"`
		RevokedAt *time.Time `json:"revoked_at"`
	} `json:"items"`
	NextCursor *string `json:"next_cursor"`
	HasMore    bool    `json:"has_more"`
}

func TestClients(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("FR-037 no key is needed", func(t *testing.T) {
			for _, body := range []string{"", "{}", `{"name":"ignored"}`} {
				w.Do(t, "POST", "/v1/clients", body).WantStatus(t, 201)
			}
		})
		t.Run("FR-038 ids of their own", func(t *testing.T) {
			if a, b := w.newClient(t), w.newClient(t); a == b {
				t.Error("they are one client")
			}
		})
		t.Run("FR-039 the same Idempotency-Key", func(t *testing.T) {
			a := w.Do(t, "POST", "/v1/clients", "", "Idempotency-Key", "random").WantStatus(t, 201)
			b := w.Do(t, "POST", "/v1/clients", "", "Idempotency-Key", "random").WantStatus(t, 201)
			assertEqual(t, "client", a.Body, b.Body)
			if c := w.Do(t, "POST", "/v1/clients", "", "Idempotency-Key", "other").WantStatus(t,
				201); c.Body == a.Body {
				t.Error("another key has the same client")
			}
		})
		t.Run("FR-045 FR-070 many at once under one key", func(t *testing.T) {
			for _, r := range testkit.RunConcurrently(20, func(int) testkit.Reply {
				return w.Do(t, "POST", "/v1/clients", "", "Idempotency-Key", "crowd")
			}) {
				assertEqual(t, "client", r.WantStatus(t, 201).Body,
					w.Do(t, "POST", "/v1/clients", "", "Idempotency-Key", "crowd").Body)
			}
		})
	})
}

func TestKeys(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		path := func(id string) string { return "/v1/clients/" + id + "/keys" }
		t.Run("FR-040 FR-042 FR-052 the first key", func(t *testing.T) {
			id := w.newClient(t)
			k := testkit.DecodeReply[issuedKey](t, w.Do(t, "POST", path(id), "").WantStatus(t, 201))
			if k.APIKey == nil || !strings.HasPrefix(*k.APIKey, "mr_") ||
				!k.CreatedAt.Equal(w.clock.Now()) ||
				!k.ExpiresAt.Equal(w.clock.Now().Add(2160*time.Hour)) ||
				!strings.HasPrefix(k.CallbackSecret, "whsec_") {
				t.Errorf("%+v", k)
			}
			for _, body := range []string{"", `{"rotate":true}`, `{`} {
				w.Do(t, "POST", path(id), body).WantError(t, 401, "RFA_AUTH_INVALID_CREDENTIALS",
					"first key", "Authorization: Bearer", "operator recover")
			}
		})
		t.Run("FR-041 bodies", func(t *testing.T) {
			for _, body := range []string{"", "{}", `{"rotate":false}`, `{"rotate":null}`,
				`{"more":1}`} {
				w.Do(t, "POST", path(w.newClient(t)), body).WantStatus(t, 201)
			}
			c := w.customer(t)
			for _, body := range []string{`{"rotate":"true"}`, `{"rotate":1}`, `{"rotate":[]}`} {
				c.Do(t, "POST", path(c.id), body).WantError(t, 400, "RFA_REQUEST_MALFORMED",
					"rotate")
				w.Do(t, "POST", path(w.newClient(t)), body).WantError(t, 400,
					"RFA_REQUEST_MALFORMED", "rotate")
			}
		})
		t.Run("FR-043 a repeat names the key", func(t *testing.T) {
			c := w.customer(t)
			r := c.Do(t, "POST", path(c.id), "{}").WantStatus(t, 200)
			k := testkit.DecodeReply[issuedKey](t, r)
			if k.APIKey != nil || k.KeyID != c.keyID ||
				!strings.Contains(r.Body, `"api_key":null`) {
				t.Errorf("%s", r.Body)
			}
			assertEqual(t, "keys", len(testkit.DecodeReply[keyList](t,
				c.Do(t, "GET", path(c.id), "").WantStatus(t, 200)).Items), 1)
			r = c.Do(t, "POST", path(c.id), "{}", "Idempotency-Key", "again").WantStatus(t, 200)
			assertEqual(t, "key", testkit.DecodeReply[issuedKey](t, r).KeyID, c.keyID)
		})
		t.Run("FR-044 rotate", func(t *testing.T) {
			c := w.customer(t)
			k := testkit.DecodeReply[issuedKey](t,
				c.Do(t, "POST", path(c.id), `{"rotate":true}`).WantStatus(t, 201))
			if k.APIKey == nil || *k.APIKey == c.key || k.KeyID == c.keyID {
				t.Errorf("%+v", k)
			}
			c.Do(t, "GET", "/v1/jobs", "").WantError(t, 403, "RFA_AUTH_API_KEY_DISABLED")
			c.key = *k.APIKey
			c.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200)
		})
		t.Run("FR-045 many ask for the first key", func(t *testing.T) {
			id := w.newClient(t)
			made := 0
			var key string
			for _, r := range testkit.RunConcurrently(20, func(int) testkit.Reply {
				return w.Do(t, "POST", path(id), "")
			}) {
				if r.Status == 201 {
					made++
					key = *testkit.DecodeReply[issuedKey](t, r).APIKey
					continue
				}
				r.WantError(t, 401, "RFA_AUTH_INVALID_CREDENTIALS") // G-FR-57
			}
			assertEqual(t, "keys", made, 1)
			c := &customer{w: w, id: id, key: key}
			assertEqual(t, "keys", len(testkit.DecodeReply[keyList](t,
				c.Do(t, "GET", path(id), "").WantStatus(t, 200)).Items), 1)
		})
		t.Run("FR-047 renew", func(t *testing.T) {
			c := w.customer(t)
			r := c.Do(t, "POST", path(c.id)+"/renew", "{}").WantStatus(t, 200)
			k := testkit.DecodeReply[issuedKey](t, r)
			c.Do(t, "GET", "/v1/jobs", "").WantError(t, 403, "RFA_AUTH_API_KEY_DISABLED")
			if k.APIKey == nil || strings.Contains(r.Body, "callback_secret") {
				t.Fatalf("%s", r.Body)
			}
			w.Do(t, "GET", "/v1/jobs", "", "Authorization", "Bearer "+*k.APIKey).WantStatus(t, 200)
		})
		t.Run("FR-049 FR-045 only one of many renews", func(t *testing.T) {
			c := w.customer(t)
			well := 0
			for _, r := range testkit.RunConcurrently(10, func(int) testkit.Reply {
				return c.Do(t, "POST", path(c.id)+"/renew", "{}")
			}) {
				switch r.Status {
				case 200:
					well++
				case 409:
					r.WantError(t, 409, "RFA_JOB_CONFLICT")
				default:
					r.WantError(t, 403, "RFA_AUTH_API_KEY_DISABLED")
				}
			}
			assertEqual(t, "renewals", well, 1)
		})
		t.Run("FR-050 FR-051 revoke", func(t *testing.T) {
			c := w.customer(t)
			revoke := func(body string) testkit.Reply {
				return c.Do(t, "POST", path(c.id)+"/revoke", body)
			}
			for _, body := range []string{"", "{}", `{"key_id":null}`, `{"key_id":7}`,
				`{"key_id":"x"}`, `{"key_id":""}`} {
				revoke(body).WantError(t, 400, "RFA_REQUEST_MALFORMED")
			}
			revoke(`{"key_id":"`+nobody+`"}`).WantError(t, 404, "RFA_JOB_NOT_FOUND", "key")
			old := c.keyID
			k := testkit.DecodeReply[issuedKey](t,
				c.Do(t, "POST", path(c.id), `{"rotate":true}`).WantStatus(t, 201))
			c.key = *k.APIKey
			for range 2 { // G-FR-25
				assertEqual(t, "answer", revoke(`{"key_id":"`+old+`"}`).WantStatus(t, 200).Body,
					`{"revoked":true}`)
			}
			// itself
			assertEqual(t, "answer", revoke(`{"key_id":"`+strings.ToUpper(k.KeyID)+
				`"}`).WantStatus(t, 200).Body, `{"revoked":true}`)
			c.Do(t, "GET", "/v1/jobs", "").WantError(t, 403, "RFA_AUTH_API_KEY_DISABLED")
		})
		t.Run("FR-055 keys are listed, revoked ones too", func(t *testing.T) {
			c := w.customer(t)
			for range 3 {
				k := testkit.DecodeReply[issuedKey](t,
					c.Do(t, "POST", path(c.id), `{"rotate":true}`).WantStatus(t, 201))
				c.key, c.keyID = *k.APIKey, k.KeyID
			}
			var all []string
			cursor := ""
			for {
				l := testkit.DecodeReply[keyList](t,
					c.Do(t, "GET", path(c.id)+"?limit=3"+cursor, "").WantStatus(t, 200))
				for _, k := range l.Items {
					all = append(all, k.KeyID)
					assertEqual(t, "revoked", k.RevokedAt != nil, k.KeyID != c.keyID)
				}
				if !l.HasMore {
					break
				}
				cursor = "&cursor=" + *l.NextCursor
			}
			assertEqual(t, "keys", len(all), 4)
			w.clock.Advance(2161 * time.Hour)
			k := testkit.DecodeReply[issuedKey](t,
				c.Do(t, "POST", path(c.id)+"/renew", "").WantStatus(t, 200))
			if _, err := w.engine.Prune(context.Background()); err != nil {
				t.Fatal(err)
			}
			r := w.Do(t, "GET", path(c.id), "", "Authorization", "Bearer "+*k.APIKey).WantStatus(t,
				200)
			// the renewed one was revoked just now
			assertEqual(t, "keys after their time", len(testkit.DecodeReply[keyList](t, r).Items),
				2)
		})
	})
}

// TestExpiry: an expired key is good for one thing, its renewal (G-FR-26).
func TestExpiry(t *testing.T) {
	t.Parallel()
	c := config()
	w := inMemory(t, c)
	who := w.customer(t)
	w.clock.Advance(2161 * time.Hour)
	who.Do(t, "GET", "/v1/jobs", "").WantError(t, 401, "RFA_AUTH_TOKEN_EXPIRED")
	t.Run("FR-013 create and revoke refuse it", func(t *testing.T) {
		who.Do(t, "POST", "/v1/clients/"+who.id+"/keys", `{"rotate":true}`).WantError(t, 401,
			"RFA_AUTH_TOKEN_EXPIRED")
		who.Do(t, "POST", "/v1/clients/"+who.id+"/keys/revoke",
			`{"key_id":"`+who.keyID+`"}`).WantError(t, 401, "RFA_AUTH_TOKEN_EXPIRED")
	})
	t.Run("FR-047 renew takes it", func(t *testing.T) {
		k := testkit.DecodeReply[issuedKey](t,
			who.Do(t, "POST", "/v1/clients/"+who.id+"/keys/renew", "{}").WantStatus(t, 200))
		w.Do(t, "GET", "/v1/jobs", "", "Authorization", "Bearer "+*k.APIKey).WantStatus(t, 200)
		who.Do(t, "POST", "/v1/clients/"+who.id+"/keys/renew", "{}").WantError(t, 403,
			"RFA_AUTH_API_KEY_DISABLED")
	})
	t.Run("FR-052 keys that never expire", func(t *testing.T) {
		c.KeyLifetime = 0
		w := inMemory(t, c)
		r := w.Do(t, "POST", "/v1/clients/"+w.newClient(t)+"/keys", "").WantStatus(t, 201)
		if !strings.Contains(r.Body, `"expires_at":null`) {
			t.Error(r.Body)
		}
		w.clock.Advance(100_000 * time.Hour)
		w.Do(t, "GET", "/v1/jobs", "", "Authorization",
			"Bearer "+*testkit.DecodeReply[issuedKey](t, r).APIKey).WantStatus(t, 200)
	})
}

// TestSecrets: a key and the callback's secret are shown once and stored nowhere as they are.
func TestSecrets(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	_, secret := c.register(t, "http://localhost:9/some", "job_failed")
	t.Run("FR-054 no later answer and no log has them", func(t *testing.T) {
		answers := ""
		for _, path := range []string{"/v1/clients/" + c.id + "/keys", "/v1/webhooks", "/v1/jobs"} {
			answers += c.Do(t, "GET", path, "").WantStatus(t, 200).Body
		}
		answers += c.Do(t, "POST", "/v1/clients/"+c.id+"/keys", "").WantStatus(t, 200).Body +
			w.log.String()
		for _, s := range []string{c.key, c.callback, secret} {
			if s == "" || strings.Contains(answers, s) {
				t.Errorf("%q is in %s", s, answers)
			}
		}
	})
}

// TestFailingStorage: a change of a key that fails has not happened (FR-048).
func TestFailingStorage(t *testing.T) {
	t.Parallel()
	w, f := faultyWorld(t, config())
	c := w.customer(t)
	gone := error(&job.Error{Kind: job.Unavailable, Op: "store"})
	for name, body := range map[string]string{"renew": "{}",
		"revoke": fmt.Sprintf(`{"key_id":%q}`, c.keyID), "": `{"rotate":true}`} {
		t.Run("FR-048 FR-198 "+name, func(t *testing.T) {
			f.failWrites(gone)
			c.Do(t, "POST", strings.TrimSuffix("/v1/clients/"+c.id+"/keys/"+name, "/"),
				body).WantError(t, 503, "RFA_STORAGE_DB_ERROR")
			f.failWrites(nil)
			c.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200)
		})
	}
}
