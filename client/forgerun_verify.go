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

// ErrInvalidWebhook: a request to a webhook does not carry a valid signature, or
// not one of this time. It is to be answered with a 4xx and forgotten.
var ErrInvalidWebhook = errors.New("webhook request is not genuine")

// WebhookTolerance is how far the time of a signature may be from now, either
// way, as Standard Webhooks has it.
const WebhookTolerance = 5 * time.Minute

// ForgeRunWebhookEvent is what a webhook or callback is told: one state change of a
// job (FR-196).
type ForgeRunWebhookEvent struct {
	// EventID is the same in every try and in every repeat of the event: a
	// receiver drops what it has seen. It is also the webhook-id header.
	EventID string            `json:"event_id"`
	JobID   string            `json:"job_id"`
	Name    ForgeRunEventName `json:"event_name"`
	// Prev is empty for the first event.
	Prev ForgeRunState `json:"prev_state"`
	Next ForgeRunState `json:"next_state"`
	// OccurredAt is the event's own time, in UTC.
	OccurredAt time.Time    `json:"occurred_at"`
	Scenario   ForgeRunKind `json:"scenario"`
	// Reason and Last are as in [ForgeRunEvent].
	Reason string `json:"reason"`
	Last   bool   `json:"final"`
	// SignedAt is the time of this try (webhook-timestamp), in whole seconds.
	SignedAt time.Time `json:"-"`
}

// VerifyWebhook checks that a request came from who knows the secret and was
// signed within [WebhookTolerance] of now, by the rules of Standard Webhooks
// 1.0 (G-FR-48), and returns what it tells. secrets are those that may be in
// use, "whsec_…": one, or two while the receiver changes from one to the next.
// body is the request's whole body, byte for byte.
//
// Errors: [ErrInvalidWebhook]; another one when the body is genuine and still not
// an event, or when a secret cannot be read.
func VerifyWebhook(secrets []string, header http.Header, body []byte,
	now time.Time) (ForgeRunWebhookEvent, error) {
	id, stamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if id == "" || err != nil {
		return ForgeRunWebhookEvent{},
			fmt.Errorf("%w: webhook-id or webhook-timestamp is missing or malformed",
				ErrInvalidWebhook)
	}
	signed := time.Unix(seconds, 0).UTC()
	if off := now.Sub(signed); off > WebhookTolerance || off < -WebhookTolerance {
		return ForgeRunWebhookEvent{}, fmt.Errorf("%w: signed at %s, which is too far from now",
			ErrInvalidWebhook, signed.Format(time.RFC3339))
	}
	genuine, err := signedByAny(secrets, id+"."+stamp+".", body, header.Values("Webhook-Signature"))
	if err != nil {
		return ForgeRunWebhookEvent{}, err
	}
	if !genuine {
		return ForgeRunWebhookEvent{}, fmt.Errorf("%w: no signature of it is valid",
			ErrInvalidWebhook)
	}
	notice := ForgeRunWebhookEvent{SignedAt: signed}
	if err := json.Unmarshal(body, &notice); err != nil {
		return ForgeRunWebhookEvent{}, fmt.Errorf("body of a webhook request: %w", err)
	}
	return notice, nil
}

// signedByAny compares every signature with that of every secret.
func signedByAny(secrets []string, head string, body []byte, signatures []string) (bool, error) {
	given := strings.Fields(strings.Join(signatures, " "))
	genuine := false
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return false, errors.New("a webhook secret is not \"whsec_\" and base64")
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(head))
		mac.Write(body)
		want := mac.Sum(nil)
		for _, one := range given {
			version, text, _ := strings.Cut(one, ",")
			got, err := base64.StdEncoding.DecodeString(text)
			genuine = genuine || (version == "v1" && err == nil && hmac.Equal(got, want))
		}
	}
	return genuine, nil
}
