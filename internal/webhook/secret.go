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
	// secretOverlap is how long requests are also signed with a secret that was replaced.
	secretOverlap = 24 * time.Hour
	// maxSecrets bounds the signatures of a request when a client rotates often.
	maxSecrets = 5
)

// secret is a sealed signing secret. The current secret of a subscription has no ValidUntil.
type secret struct {
	Sealed     string    `json:"sealed"`
	ValidUntil time.Time `json:"until,omitzero"`
}

// newSecret makes a secret of 256 bits. plain is shown to the client once and is never stored; s
// holds it sealed by the vault.
func (w *Webhooks) newSecret() (plain string, s secret, err error) {
	var b [secretBytes]byte
	if err = w.readRandom(b[:]); err != nil {
		return "", s, err
	}
	return w.sealSecret(secretPrefix + base64.StdEncoding.EncodeToString(b[:]))
}

// sealSecret is newSecret for one that is given; empty makes a new one.
func (w *Webhooks) sealSecret(given string) (plain string, s secret, err error) {
	if given == "" {
		return w.newSecret()
	}
	s.Sealed, err = w.Vault.Seal([]byte(given))
	return given, s, err
}

// rotateSecrets returns the valid secrets after a new one. The secret that it replaces stays valid
// for secretOverlap.
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

// validSecrets returns those secrets that sign at a time: the current one, and replaced ones within
// their overlap.
func validSecrets(all []secret, now time.Time) (current []secret) {
	for _, s := range all {
		if s.ValidUntil.IsZero() || s.ValidUntil.After(now) {
			current = append(current, s)
		}
	}
	return current
}

// signatures returns the value of the header webhook-signature: one signature for each secret.
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

// Sign sets the headers of Standard Webhooks. By the signature a receiver knows that the body comes
// from a sender with the same secret, and by id it recognises a repeated request.
func Sign(h http.Header, secret, id string, at time.Time, body []byte) error {
	return sign(h, []string{secret}, id, at, body)
}

// sign sets the headers of a request with one signature for each secret. A receiver accepts the
// request if it knows any one of them, so a rotation needs no coordination with it.
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
