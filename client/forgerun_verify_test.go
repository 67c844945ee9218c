package client_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// The example that Standard Webhooks implementations share.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorAt        = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func webhookHeader(id, timestamp string, signatures ...string) http.Header {
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp},
		"Webhook-Signature": signatures}
}

func signed(key []byte, id, timestamp, body string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestVerifyWebhook(t *testing.T) {
	t.Parallel()
	timestamp, now := strconv.Itoa(vectorAt), time.Unix(vectorAt, 0)
	one := []string{vectorSecret}
	for name, tt := range map[string]struct {
		secrets []string
		header  http.Header
		body    string
		now     time.Time
		valid   bool
	}{
		"the shared example": {one, webhookHeader(vectorID, timestamp, vectorSignature),
			vectorBody, now, true},
		"a secret without prefix": {[]string{vectorSecret[6:]},
			webhookHeader(vectorID, timestamp, vectorSignature), vectorBody, now, true},
		"one of two signatures": {one,
			webhookHeader(vectorID, timestamp, "v1,AAAA "+vectorSignature), vectorBody, now, true},
		"in two header lines": {one,
			webhookHeader(vectorID, timestamp, "v1,AAAA", vectorSignature), vectorBody, now, true},
		"one of two secrets": {[]string{"whsec_eHl6", vectorSecret},
			webhookHeader(vectorID, timestamp, vectorSignature), vectorBody, now, true},
		"five minutes late": {one, webhookHeader(vectorID, timestamp, vectorSignature),
			vectorBody, now.Add(5 * time.Minute), true},
		"later than that": {one, webhookHeader(vectorID, timestamp, vectorSignature),
			vectorBody, now.Add(5*time.Minute + time.Second), false},
		"from the future": {one, webhookHeader(vectorID, timestamp, vectorSignature),
			vectorBody, now.Add(-5*time.Minute - time.Second), false},
		"another body": {one, webhookHeader(vectorID, timestamp, vectorSignature),
			vectorBody + " ", now, false},
		"another id": {one, webhookHeader(vectorID+"x", timestamp, vectorSignature),
			vectorBody, now, false},
		"another time": {one,
			webhookHeader(vectorID, strconv.Itoa(vectorAt+1), vectorSignature), vectorBody, now,
			false},
		"another secret": {[]string{"whsec_eHl6"},
			webhookHeader(vectorID, timestamp, vectorSignature), vectorBody, now, false},
		"another version": {one, webhookHeader(vectorID, timestamp, "v2"+vectorSignature[2:]),
			vectorBody, now, false},
		"no signature": {one, webhookHeader(vectorID, timestamp), vectorBody, now, false},
		"an empty signature": {one, webhookHeader(vectorID, timestamp, "v1,"), vectorBody, now,
			false},
		"a part of the signature": {one, webhookHeader(vectorID, timestamp, vectorSignature[:20]),
			vectorBody, now, false},
		"no id": {one, webhookHeader("", timestamp, vectorSignature), vectorBody,
			now, false},
		"no time": {one, webhookHeader(vectorID, "", vectorSignature), vectorBody,
			now, false},
		"a time that is no number": {one, webhookHeader(vectorID, timestamp+".0", vectorSignature),
			vectorBody, now, false},
		"no secret": {nil, webhookHeader(vectorID, timestamp, vectorSignature),
			vectorBody, now, false},
	} {
		_, err := client.VerifyWebhook(tt.secrets, tt.header, []byte(tt.body), tt.now)
		if (tt.valid && err != nil) ||
			(!tt.valid && !errors.Is(err, client.ErrInvalidWebhook)) {
			t.Errorf("G-FR-48 %s: %v", name, err)
		}
	}
	for name, secret := range map[string]string{"empty": "", "empty after the prefix": "whsec_",
		"not base64": "whsec_???"} {
		_, err := client.VerifyWebhook([]string{secret},
			webhookHeader(vectorID, timestamp, signed(nil, vectorID, timestamp, vectorBody)),
			[]byte(vectorBody), now)
		if err == nil || errors.Is(err, client.ErrInvalidWebhook) {
			t.Errorf("a secret that is %s: %v", name, err)
		}
	}
}

func TestVerifyWebhook_event(t *testing.T) {
	t.Parallel()
	const body = `{"job_id":"j-1","event_id":"e-1","event_name":"job_failed","prev_state":"RUNNING","next_state":"FAILED",` +
		`"occurred_at":"2026-03-01T12:00:00.123456Z","scenario":"RETRY_LIMIT_REACHED","final":true,"later":"unknown"}`
	now := time.Unix(vectorAt, 0).UTC()
	header := func(text string) http.Header {
		return webhookHeader("e-1", strconv.Itoa(vectorAt),
			signed([]byte("key"), "e-1", strconv.Itoa(vectorAt), text))
	}
	got, err := client.VerifyWebhook([]string{"whsec_a2V5"}, header(body), []byte(body),
		now.Add(time.Second))
	want := client.ForgeRunWebhookEvent{EventID: "e-1", JobID: "j-1",
		Name: client.ForgeRunEventJobFailed,
		Prev: client.ForgeRunStateRunning, Next: client.ForgeRunStateFailed,
		OccurredAt: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
		Scenario:   client.ForgeRunWorkRetryLimitReached, Final: true, SignedAt: now}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("FR-196 %v\ngot  %+v\nwant %+v", err, got, want)
	}
	if _, err := client.VerifyWebhook([]string{"whsec_a2V5"}, header("{"), []byte("{"),
		now); err == nil || errors.Is(err, client.ErrInvalidWebhook) {
		t.Errorf("a genuine body that is no event: %v", err)
	}
}

// The event of a callback of another contract has a type and data.
func TestVerifyWebhook_callback(t *testing.T) {
	t.Parallel()
	const body = `{"type":"taskflow.job.completed","timestamp":"2026-03-01T12:00:00.123456Z",` +
		`"data":{"id":"1","result":{"n":1.0}}}`
	key, at := []byte("0123456789abcdef01234567"), time.Unix(vectorAt, 0)
	header := webhookHeader("the-id", strconv.Itoa(vectorAt),
		signed(key, "the-id", strconv.Itoa(vectorAt), body))
	event, err := client.VerifyWebhook([]string{base64.StdEncoding.EncodeToString(key)}, header,
		[]byte(body), at)
	must(t, err)
	want := client.ForgeRunWebhookEvent{EventID: "the-id", Type: "taskflow.job.completed",
		Data:       []byte(`{"id":"1","result":{"n":1.0}}`),
		OccurredAt: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC), SignedAt: at.UTC()}
	if !reflect.DeepEqual(event, want) {
		t.Errorf("event %+v, want %+v", event, want)
	}
}
