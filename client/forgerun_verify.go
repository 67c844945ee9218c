package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrInvalidWebhook means that a request to a webhook has no valid signature, or an old one. The
// receiver should answer it with a 4xx and ignore it.
var ErrInvalidWebhook = errors.New("webhook request is not genuine")

// WebhookTolerance is how far the time of a signature may be from now, in either direction, as in
// Standard Webhooks.
const WebhookTolerance = 5 * time.Minute

// ForgeRunWebhookEvent is the body of a request to a webhook or callback: one state change of a
// job (FR-196). That of a callback of another contract, or of a webhook of operators, has a Type
// and Data in the place of what is about ForgeRun's jobs (WH-003).
type ForgeRunWebhookEvent struct {
	// EventID is the same in every try and every replay of a delivery, so that a receiver can
	// ignore events it has seen. It is also the webhook-id header.
	EventID string            `json:"event_id"`
	JobID   string            `json:"job_id"`
	Name    ForgeRunEventName `json:"event_name"`
	// Prev is empty for the first event.
	Prev ForgeRunState `json:"prev_state"`
	Next ForgeRunState `json:"next_state"`
	// OccurredAt is when the state changed, in UTC.
	OccurredAt time.Time        `json:"occurred_at"`
	Scenario   ForgeRunWorkKind `json:"scenario"`
	// Reason and Final are as in [ForgeRunEvent].
	Reason string `json:"reason"`
	Final  bool   `json:"final"`
	// Type is the type of the event, such as "taskflow.job.completed"; empty for an event of a
	// client of ForgeRun.
	Type string `json:"type"`
	// Data is what the event says about the job, a JSON object; nil for an event without a Type.
	Data json.RawMessage `json:"data"`
	// SignedAt is when this request was signed (webhook-timestamp), in whole seconds, in UTC.
	SignedAt time.Time `json:"-"`
}

// VerifyWebhook checks that a request was signed with one of the secrets within [WebhookTolerance]
// of now, by the rules of Standard Webhooks 1.0 (G-FR-48), and returns its event. secrets are
// those in use, "whsec_…": one, or two while the receiver changes from one to the next. body is
// the whole body of the request, byte for byte.
//
// Errors: [ErrInvalidWebhook]; another error when the body has a valid signature but is no event,
// or when a secret is malformed.
func VerifyWebhook(secrets []string, header http.Header, body []byte,
	now time.Time) (ForgeRunWebhookEvent, error) {
	id, timestamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if id == "" || err != nil {
		return ForgeRunWebhookEvent{}, fmt.Errorf(
			"%w: webhook-id or webhook-timestamp is missing or malformed", ErrInvalidWebhook)
	}
	signed := time.Unix(seconds, 0).UTC()
	if off := now.Sub(signed); off > WebhookTolerance || off < -WebhookTolerance {
		return ForgeRunWebhookEvent{}, fmt.Errorf("%w: signed at %s, which is too far from now",
			ErrInvalidWebhook, signed.Format(time.RFC3339))
	}
	valid, err := signedByAny(secrets, id+"."+timestamp+".", body,
		header.Values("Webhook-Signature"))
	if err != nil {
		return ForgeRunWebhookEvent{}, err
	}
	if !valid {
		return ForgeRunWebhookEvent{}, fmt.Errorf("%w: it has no valid signature",
			ErrInvalidWebhook)
	}
	var event struct {
		ForgeRunWebhookEvent
		Timestamp time.Time `json:"timestamp"` // in the place of occurred_at, with a type
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return ForgeRunWebhookEvent{}, fmt.Errorf("body of a webhook request: %w", err)
	}
	event.SignedAt, event.EventID = signed, id
	if event.OccurredAt.IsZero() {
		event.OccurredAt = event.Timestamp
	}
	return event.ForgeRunWebhookEvent, nil
}

// signedByAny reports whether one of the signatures was made with one of the secrets.
func signedByAny(secrets []string, head string, body []byte, signatures []string) (bool, error) {
	given := strings.Fields(strings.Join(signatures, " "))
	valid := false
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return false, errors.New("a webhook secret is not \"whsec_\" and base64")
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(head))
		mac.Write(body)
		want := mac.Sum(nil)
		for _, signature := range given {
			if isSignature(signature, want) {
				valid = true
			}
		}
	}
	return valid, nil
}

// isSignature reports whether a signature of the header, such as "v1,aGVsbG8=", is the wanted one.
// It compares in constant time.
func isSignature(signature string, want []byte) bool {
	version, text, _ := strings.Cut(signature, ",")
	got, err := base64.StdEncoding.DecodeString(text)
	if err != nil || version != "v1" {
		return false
	}
	return hmac.Equal(got, want)
}
