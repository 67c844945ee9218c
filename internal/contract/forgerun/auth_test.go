package forgerun_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// TestNoKey: without a good key nothing happens on any route, whatever is sent.
func TestNoKey(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	id := c.submit(t, submitBody("SUCCESS_FAST"))
	hook, _ := c.register(t, "http://localhost:9/some", "job_failed")
	before := c.Do(t, "GET", "/v1/jobs/"+id, "").Body
	unknown := c.key[:len(c.key)-10] + "AAAAAAAAAA"
	for _, s := range sample {
		if s.name == "create_client" {
			continue
		}
		path := fillPath(s.path, c.id, id, hook)
		t.Run("FR-012 FR-028 "+s.name, func(t *testing.T) {
			for _, a := range []string{"", "Bearer", "Bearer ", "Bearer x", "Basic " + c.key, c.key,
				"Bearer " + unknown, "Bearer " + c.key + "x",
				"Bearer " + strings.ToLower(c.key), "Token " + c.key,
				"Bearer " + c.key + " " + c.key} {
				w.Do(t, s.method, path, s.body, "Authorization", a).WantError(t, 401,
					"RFA_AUTH_INVALID_CREDENTIALS")
			}
			w.Do(t, s.method, path+"?api_key="+c.key+"&access_token="+c.key, s.body, "X-Api-Key",
				c.key).WantError(t, 401, "RFA_AUTH_INVALID_CREDENTIALS")
		})
		if s.method != "POST" {
			continue
		}
		t.Run("FR-029 before the body "+s.name, func(t *testing.T) {
			for _, body := range []string{"{", `{"type":7}`, `{"rotate":7}`, `{}`} {
				w.Do(t, "POST", path, body).WantError(t, 401, "RFA_AUTH_INVALID_CREDENTIALS")
			}
		})
	}
	t.Run("FR-030 FR-036 no effect", func(t *testing.T) {
		assertEqual(t, "jobs", w.jobs(t), 1)
		assertEqual(t, "job", c.Do(t, "GET", "/v1/jobs/"+id, "").Body, before)
		w.Do(t, "POST", "/v1/jobs", submitBody(""), "Idempotency-Key", "k").WantStatus(t, 401)
		w.Do(t, "POST", "/v1/jobs/"+id+"/cancel", "").WantStatus(t, 401)
		c.wantState(t, id, "QUEUED")
		a := c.submit(t, submitBody("IO_HEAVY"), "Idempotency-Key", "k") // which was not consumed
		assertEqual(t, "kind", c.get(t, a).WorkKind, "IO_HEAVY")
	})
	t.Run("FR-031 the same for every job", func(t *testing.T) {
		strip := func(r testkit.Reply) string {
			p := testkit.DecodeReply[testkit.Problem](t,
				r.WantError(t, 401, "RFA_AUTH_INVALID_CREDENTIALS"))
			return strings.ReplaceAll(r.Body, p.Instance, "")
		}
		assertEqual(t, "body", strip(w.Do(t, "GET", "/v1/jobs/"+id, "")),
			strip(w.Do(t, "GET", "/v1/jobs/"+nobody, "")))
		if body := w.Do(t, "GET", "/v1/jobs/"+id, "").Body; strings.Contains(body, id) {
			t.Errorf("the answer has %s", body)
		}
	})
	t.Run("FR-028 the scheme in any case", func(t *testing.T) {
		w.Do(t, "GET", "/v1/jobs/"+id, "", "Authorization", "bearer  "+c.key).WantStatus(t, 200)
	})
}

func TestKeyStates(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	other := w.customer(t)
	t.Run("FR-015 FR-050 revoked", func(t *testing.T) {
		old := c.key
		c.key = *testkit.DecodeReply[issuedKey](t,
			c.Do(t, "POST", "/v1/clients/"+c.id+"/keys", `{"rotate":true}`).WantStatus(t,
				201)).APIKey
		w.Do(t, "GET", "/v1/jobs", "", "Authorization", "Bearer "+old).WantError(t, 403,
			"RFA_AUTH_API_KEY_DISABLED")
		w.Do(t, "POST", "/v1/jobs", submitBody(""), "Authorization", "Bearer "+old).WantError(t,
			403, "RFA_AUTH_API_KEY_DISABLED")
		assertEqual(t, "jobs", w.jobs(t), 0)
	})
	t.Run("FR-013 FR-053 expired", func(t *testing.T) {
		w.clock.Advance(2160*time.Hour - time.Second)
		c.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200)
		w.clock.Advance(time.Second)
		c.Do(t, "GET", "/v1/jobs", "").WantError(t, 401, "RFA_AUTH_TOKEN_EXPIRED")
		c.Do(t, "POST", "/v1/jobs", "{").WantError(t, 401, "RFA_AUTH_TOKEN_EXPIRED")
	})
	t.Run("FR-035 denials in the log", func(t *testing.T) {
		w.Do(t, "GET", "/v1/jobs", "", "Authorization", "Bearer nonsense-key", "X-Request-Id",
			"denied-1").WantStatus(t, 401)
		assertEqual(t, "lines", len(w.log.Lines(t,
			map[string]any{"level": "WARN", "reason": "malformed", "request_id": "denied-1"})), 1)
		for reason, id := range map[string]string{"expired": c.id, "disabled": c.id} {
			if len(w.log.Lines(t, map[string]any{"level": "WARN", "reason": reason,
				"client_id": id})) == 0 {
				t.Errorf("no line for %s", reason)
			}
		}
		for _, secret := range []string{c.key, other.key, "nonsense-key", c.callback} {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("%s is in the log", secret)
			}
		}
	})
}

// TestOtherClients: what belongs to another client is neither shown nor changed.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	own, theirs := w.customer(t), w.customer(t)
	id := theirs.submit(t, submitBody("SUCCESS_FAST"))
	hook, _ := theirs.register(t, "http://localhost:9/some", "job_failed")
	w.fail(t)
	before := theirs.Do(t, "GET", "/v1/jobs/"+id, "").Body
	for _, s := range sample {
		if !strings.Contains(s.path, "%") {
			continue
		}
		t.Run("FR-014 FR-032 FR-033 FR-034 "+s.name, func(t *testing.T) {
			path := fillPath(s.path, theirs.id, id, hook)
			r := own.Do(t, s.method, path, s.body)
			r.WantError(t, 403, "RFA_AUTH_FORBIDDEN")
			if strings.Contains(r.Body, "FAILED") || strings.Contains(r.Body, "localhost") {
				t.Errorf("the answer tells %s", r.Body)
			}
			if s.method == "POST" { // ownership before the body
				own.Do(t, "POST", path, "{").WantError(t, 403, "RFA_AUTH_FORBIDDEN")
			}
		})
	}
	t.Run("FR-033 nothing has changed", func(t *testing.T) {
		assertEqual(t, "job", theirs.Do(t, "GET", "/v1/jobs/"+id, "").Body, before)
		theirs.Do(t, "GET", "/v1/webhooks/"+hook+"/deliveries", "").WantStatus(t, 200)
		if got := own.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200).Body; strings.Contains(got,
			id) {
			t.Errorf("the list has %s", got)
		}
		if got := own.Do(t, "GET", "/v1/webhooks", "").WantStatus(t,
			200).Body; strings.Contains(got, hook) {
			t.Errorf("the list has %s", got)
		}
		theirs.Do(t, "GET", "/v1/clients/"+theirs.id+"/keys", "").WantStatus(t, 200)
	})
	t.Run("FR-032 a key of another cannot be revoked", func(t *testing.T) {
		own.Do(t, "POST", "/v1/clients/"+own.id+"/keys/revoke",
			`{"key_id":"`+theirs.keyID+`"}`).WantError(t, 403, "RFA_AUTH_FORBIDDEN")
		theirs.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200)
	})
	t.Run("FR-046 a client that does not exist", func(t *testing.T) { // G-FR-65
		for _, id := range []string{nobody, "x"} {
			for _, s := range sample[1:5] {
				own.Do(t, s.method, fillPath(s.path, id, "", ""), s.body).WantError(t, 404,
					"RFA_JOB_NOT_FOUND")
			}
			w.Do(t, "POST", "/v1/clients/"+id+"/keys", "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
		}
	})
}
