package account

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// minPepperBytes is the least a pepper has.
const minPepperBytes = 32

// What keys are derived from the pepper for. A purpose never changes: everything
// made under it would be lost.
const (
	purposeTokens          = "millrace api key"
	purposeVault           = "millrace vault"
	purposeIdempotencyKeys = "millrace idempotency key"
	purposePepperCheck     = "millrace pepper check"
)

// derive makes a key for one purpose.
func derive(pepper []byte, purpose string) ([]byte, error) {
	if len(pepper) < minPepperBytes {
		return nil, fmt.Errorf("account: the pepper has %d bytes, at least %d are needed",
			len(pepper), minPepperBytes)
	}
	return hkdf.Key(sha256.New, pepper, nil, purpose, 32)
}

// Vault seals secrets that must be read again, such as those that sign webhooks,
// so that the store alone does not give them away.
type Vault struct{ aead cipher.AEAD }

// NewVault makes a vault; every node with the same pepper opens what one sealed.
func NewVault(pepper []byte) (*Vault, error) {
	key, err := derive(pepper, purposeVault)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &Vault{aead}, err
}

const sealPrefix = "v1:" // AES-256-GCM, nonce first, base64

var errSeal = errors.New("account: a sealed secret cannot be opened: it was changed, or sealed " +
	"under another pepper")

// Seal encrypts and authenticates plain. Sealing the same twice gives two texts.
func (v *Vault) Seal(plain []byte) (string, error) {
	return sealPrefix + base64.RawStdEncoding.EncodeToString(v.aead.Seal(nil, nil, plain, nil)), nil
}

// Open returns what was sealed, or an error when a bit of it was changed.
func (v *Vault) Open(sealed string) ([]byte, error) {
	text, ok := strings.CutPrefix(sealed, sealPrefix)
	if !ok {
		return nil, errSeal
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errSeal
	}
	plain, err := v.aead.Open(nil, nil, raw, nil)
	if err != nil {
		return nil, errSeal
	}
	return plain, nil
}
