package account

import "github.com/google/uuid"

// FormatToken writes a key that nobody was given.
var FormatToken = formatToken

// ParseToken finds the id in a key.
var ParseToken = parseToken

// Held tells how many keys are held in memory, and reads of them are under way.
func (a *Accounts) Held() (keys, reads int) {
	a.keys.mu.Lock()
	defer a.keys.mu.Unlock()
	return len(a.keys.young) + len(a.keys.old), len(a.keys.reads)
}

// Counted tells how many clients and addresses are counted in memory.
func (a *Accounts) Counted() (clients, addresses int) {
	return len(a.clients.meters), len(a.addresses.meters)
}

// KeyKind is the kind of the records of keys.
const KeyKind = keyKind

// Forge writes a key with the id of another and a secret that was guessed.
func Forge(token string) string {
	id, _ := parseToken(token)
	return formatToken(id, [secretBytes]byte{1})
}

// Nobodys writes a well-formed key that does not exist.
func Nobodys() string { return formatToken(uuid.New(), [secretBytes]byte{2}) }
