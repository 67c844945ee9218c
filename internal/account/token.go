package account

import (
	"encoding/hex"
	"hash/crc32"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/uuids"
)

// Parts of a key; doc.go shows the whole. secretLen is how many base62 digits 32 bytes need.
const (
	tokenPrefix = "mr_"
	idDigits    = 32
	secretBytes = 32
	secretLen   = 43
	checksumLen = 6

	idOffset       = len(tokenPrefix)
	secretOffset   = idOffset + idDigits + 1
	checksumOffset = secretOffset + secretLen
	tokenLen       = checksumOffset + checksumLen
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// formatToken returns the text of a key.
func formatToken(id uuid.UUID, secret [secretBytes]byte) string {
	text := tokenPrefix + hex.EncodeToString(id[:]) + "_" +
		digits(new(big.Int).SetBytes(secret[:]), secretLen)
	return text + checksum(text)
}

// parseToken returns the id in a well-formed key: its length, digits and checksum are right. A key
// has only one spelling.
func parseToken(text string) (id uuid.UUID, ok bool) {
	if len(text) != tokenLen || text[:idOffset] != tokenPrefix || text[secretOffset-1] != '_' {
		return id, false
	}
	for i := idOffset; i < secretOffset-1; i++ {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, false
		}
	}
	for i := secretOffset; i < tokenLen; i++ {
		if strings.IndexByte(base62, text[i]) < 0 {
			return id, false
		}
	}
	if text[checksumOffset:] != checksum(text[:checksumOffset]) {
		return id, false
	}
	if _, err := hex.Decode(id[:], []byte(text[idOffset:secretOffset-1])); err != nil {
		return id, false
	}
	return id, true
}

// checksum returns the CRC-32 of a key's text before the checksum, in base62.
func checksum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	var b [checksumLen]byte
	for i := checksumLen - 1; i >= 0; i-- {
		b[i] = base62[sum%62]
		sum /= 62
	}
	return string(b[:])
}

// digits formats a number in base62 with leading zeros.
func digits(n *big.Int, width int) string {
	b := make([]byte, width)
	remainder, base := new(big.Int), big.NewInt(62)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, remainder)
		b[i] = base62[remainder.Int64()]
	}
	return string(b)
}

// newToken makes a key. Its id is a UUID of version 7, which sorts by time, so that a client's keys
// are listed in the order they were made. It fails if the random source fails: no key is made
// without its full 256 bits.
func newToken(random io.Reader, now time.Time) (id uuid.UUID, text string, err error) {
	var secret [secretBytes]byte
	if _, err = io.ReadFull(random, secret[:]); err != nil {
		return id, "", err
	}
	if _, err = io.ReadFull(random, id[6:]); err != nil {
		return id, "", err
	}
	id = uuids.NewV7(now, id)
	return id, formatToken(id, secret), nil
}

// Bearer returns the key in the values of a request's Authorization header (FR-028). It returns ""
// without the header, and a malformed key for anything but a single Bearer credential.
func Bearer(authorization []string) string {
	if len(authorization) == 0 {
		return ""
	}
	scheme, key, _ := strings.Cut(authorization[0], " ")
	if len(authorization) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return malformedKey
	}
	return strings.TrimSpace(key)
}

// malformedKey is what Bearer returns for credentials that are no single Bearer key. parseToken
// refuses it, so the denial is Malformed and not Missing.
const malformedKey = "?"
