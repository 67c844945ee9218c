package forgerun_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/testkit"
)

// FuzzSubmission: a body is accepted, or refused with 400.
func FuzzSubmission(f *testing.F) {
	for _, r := range rejected {
		f.Add([]byte(r.body))
	}
	f.Add([]byte(submitBody("IO_HEAVY", executionAtMember(testkit.StartTime),
		`"callback":"http://localhost/x"`, `"idempotency_key":"k"`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		wantClientError(t, forgerun.ParseSubmission(body, testkit.StartTime))
	})
}

// FuzzHook is the same for the registration of webhooks.
func FuzzHook(f *testing.F) {
	f.Add([]byte(`{"url":"http://localhost/x","events":["job_failed","job_failed"]}`))
	f.Add([]byte(`{"url":null,"events":[1]}`))
	f.Fuzz(func(t *testing.T, body []byte) { wantClientError(t, forgerun.ParseWebhook(body)) })
}

func wantClientError(t *testing.T, err error) {
	if err == nil {
		return
	}
	if _, status := forgerun.CodeOf(err); status != 400 || err.Error() == "" {
		t.Fatalf("%v is answered with %d", err, status)
	}
}

// FuzzDefinition: what was stored is read as it was, or not at all.
func FuzzDefinition(f *testing.F) {
	f.Add([]byte(`{}`))
	for _, k := range forgerun.Kinds(time.Minute) {
		f.Add(forgerun.NewDefinition(k.Name, testkit.StartTime, "http://localhost/\"x\"", 7))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		again, err := forgerun.Definition(raw)
		if err != nil {
			return
		}
		if third, err := forgerun.Definition(again); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%s became %s, then %s: %v", raw, again, third, err)
		}
	})
}
