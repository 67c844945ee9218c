package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// bearer checks the token of a Router. It compares digests in constant time, so that the time it
// takes reveals neither the content nor the length of the token.
type bearer struct {
	required bool
	digest   [sha256.Size]byte
}

// newBearer prepares a token for comparisons; an empty one matches every request.
func newBearer(token setting.Secret) bearer {
	return bearer{required: !token.Empty(), digest: sha256.Sum256([]byte(token.Reveal()))}
}

// matches reports whether a request carries the token, or none is required (G-X-17).
func (b *bearer) matches(r *http.Request) bool {
	if !b.required {
		return true
	}
	given := r.Header["Authorization"]
	if len(given) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	digest := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(digest[:], b.digest[:]) == 1 &&
		strings.EqualFold(scheme, "Bearer")
}
