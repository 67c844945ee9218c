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

// minPepperBytes is the minimal length of a pepper.
const minPepperBytes = 32

// Purposes for which keys are derived from the pepper. They must never change: stored data that
// depends on a purpose's key would be lost.
const (
	purposeTokens          = "millrace api key"
	purposeVault           = "millrace vault"
	purposeIdempotencyKeys = "millrace idempotency key"
	purposePepperCheck     = "millrace pepper check"
)

// derive returns the key for one purpose (HKDF).
func derive(pepper []byte, purpose string) ([]byte, error) {
	if len(pepper) < minPepperBytes {
		return nil, fmt.Errorf("account: the pepper has %d bytes, at least %d are needed",
			len(pepper), minPepperBytes)
	}
	return hkdf.Key(sha256.New, pepper, nil, purpose, 32)
}

// Vault encrypts secrets that the server must read later, such as those that sign webhooks. Without
// the pepper a copy of the store does not reveal them.
type Vault struct{ aead cipher.AEAD }

// NewVault makes a vault. All nodes with the same pepper can open each other's secrets.
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

var errSeal = errors.New("a sealed secret cannot be opened: it was sealed under the pepper of " +
	"another node, whose pepper file this node needs (secrets.pepper_file), or it was changed")

// Seal encrypts and authenticates plain. Sealing the same text twice gives different results.
func (v *Vault) Seal(plain []byte) (string, error) {
	return sealPrefix + base64.RawStdEncoding.EncodeToString(v.aead.Seal(nil, nil, plain, nil)), nil
}

// Open decrypts a sealed text. It returns an error if the text was changed or sealed under another
// pepper.
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
