package webhook_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/webhook"
)

// FuzzSign: what is signed is verified by the client, and with another body, secret or id it is
// not.
func FuzzSign(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), "id", int64(1_700_000_000), []byte(`{}`), byte(1))
	f.Add([]byte("0123456789abcdef0123456789abcdef"), "i.d", int64(0), []byte(`{"a":"\u0000"}`), byte(9))
	f.Add([]byte("0123456789abcdef01234567"), "\xff", int64(-1), []byte{}, byte(0))
	f.Fuzz(func(t *testing.T, key []byte, id string, unix int64, body []byte, change byte) {
		if len(key) < 24 || len(key) > 64 || id == "" || len(body) == 0 || unix < 0 || unix > 1<<40 {
			return
		}
		secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
		at, h := time.Unix(unix, 0), http.Header{}
		if err := webhook.Sign(h, secret, id, at, body); err != nil {
			t.Fatal(err)
		}
		// The body need be no event: then the error is another one.
		if _, err := client.VerifyWebhook([]string{secret}, h, body, at); errors.Is(err,
			client.ErrInvalidWebhook) {
			t.Fatalf("%q of %q is not verified: %v", body, id, err)
		}
		wrong := append([]byte{}, body...)
		wrong[int(change)%len(wrong)] ^= change | 1
		other := "whsec_" + base64.StdEncoding.EncodeToString(append([]byte{key[0] ^ 1}, key[1:]...))
		refused := func(secret string, h http.Header, body []byte) {
			if _, err := client.VerifyWebhook([]string{secret}, h, body, at); !errors.Is(err,
				client.ErrInvalidWebhook) {
				t.Fatalf("%q of %q is verified: %v", body, id, err)
			}
		}
		refused(secret, h, wrong)
		refused(other, h, body)
		h.Set("Webhook-Id", id+"x")
		refused(secret, h, body)
	})
}
