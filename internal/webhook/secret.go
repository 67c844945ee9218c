package webhook

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	// secretOverlap is how long a secret that was replaced still signs.
	secretOverlap = 24 * time.Hour
	// maxSecrets bounds the signatures of a request when somebody rotates all the time.
	maxSecrets = 5
)

// secret is one that signs, sealed. The last of a subscription has no end.
type secret struct {
	Sealed     string    `json:"sealed"`
	ValidUntil time.Time `json:"until,omitzero"`
}

func (w *Webhooks) newSecret() (plain string, s secret, err error) {
	var b [secretBytes]byte
	if err = w.readRandom(b[:]); err != nil {
		return "", s, err
	}
	plain = secretPrefix + base64.StdEncoding.EncodeToString(b[:])
	s.Sealed, err = w.Vault.Seal([]byte(plain))
	return plain, s, err
}

// rotateSecrets is a list of secrets with a new one at its front and the one it replaces about to
// end.
func rotateSecrets(all []secret, now time.Time, replacement secret) []secret {
	next := []secret{replacement}
	for _, s := range validSecrets(all, now) {
		if s.ValidUntil.IsZero() {
			s.ValidUntil = now.Add(secretOverlap)
		}
		next = append(next, s)
	}
	return next[:min(len(next), maxSecrets)]
}

func validSecrets(all []secret, now time.Time) (current []secret) {
	for _, s := range all {
		if s.ValidUntil.IsZero() || s.ValidUntil.After(now) {
			current = append(current, s)
		}
	}
	return current
}

// signatures is the webhook-signature header: one signature a secret.
func signatures(secrets []string, eventID string, at time.Time, body []byte) (string, error) {
	all := make([]string, len(secrets))
	for i, s := range secrets {
		signer, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			return "", err
		}
		if all[i], err = signer.Sign(eventID, at, body); err != nil {
			return "", err
		}
	}
	return strings.Join(all, " "), nil
}

// Sign puts the headers of Standard Webhooks onto a request: who gets it knows by them that the
// body is from whoever shares the secret, and recognises by id what it has got before.
func Sign(h http.Header, secret, id string, at time.Time, body []byte) error {
	return sign(h, []string{secret}, id, at, body)
}

func sign(h http.Header, secrets []string, id string, at time.Time, body []byte) error {
	signed, err := signatures(secrets, id, at, body)
	if err != nil {
		return err
	}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("Webhook-Signature", signed)
	return nil
}
