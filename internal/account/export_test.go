package account

import "github.com/google/uuid"

// FormatToken writes a key that is not stored.
var FormatToken = formatToken

// ParseToken finds the id in a key.
var ParseToken = parseToken

// CacheSize returns how many keys are cached, and how many reads are in progress.
func (a *Accounts) CacheSize() (keys, reads int) {
	a.keys.mu.Lock()
	defer a.keys.mu.Unlock()
	return len(a.keys.young) + len(a.keys.old), len(a.keys.reads)
}

// BucketCounts returns how many clients and addresses are counted in memory.
func (a *Accounts) BucketCounts() (clients, addresses int) {
	return len(a.clients.buckets), len(a.addresses.buckets)
}

// KeyKind is the kind of the records of keys.
const KeyKind = keyKind

// ForgeToken writes a key with the id of another and a secret that was guessed.
func ForgeToken(token string) string {
	id, _ := parseToken(token)
	return formatToken(id, [secretBytes]byte{1})
}

// UnknownToken writes a well-formed key that does not exist.
func UnknownToken() string { return formatToken(uuid.New(), [secretBytes]byte{2}) }
