package strictjson

import (
	"bytes"
	"cmp"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// The errors of single values. This package returns them unwrapped.
var (
	ErrKind       = errors.New("wrong JSON type")
	ErrNotInteger = errors.New("not an integer")
	ErrRange      = errors.New("out of range")
	ErrTime       = errors.New("not an RFC 3339 time")
	ErrSurrogate  = errors.New("lone surrogate in string")
	ErrNUL        = errors.New("U+0000 in string")
)

// Kind is the JSON type of a value.
type Kind uint8

const (
	KindInvalid Kind = iota // not a value; never returned for checked text
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

// kindNames are the names of the kinds in error texts, by kind.
var kindNames = [...]string{"invalid", "null", "bool", "number", "string", "array", "object"}

// String returns the name of the kind for use in messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[KindInvalid]
}

// KindOf returns the type of a checked value, which its first byte determines. A contract calls it
// before it reads a value whose type the caller may choose.
func KindOf(raw []byte) Kind {
	i := skipSpace(raw, 0)
	if i >= len(raw) {
		return KindInvalid
	}
	switch ch := raw[i]; {
	case ch == '{':
		return KindObject
	case ch == '[':
		return KindArray
	case ch == '"':
		return KindString
	case ch == 't' || ch == 'f':
		return KindBool
	case ch == 'n':
		return KindNull
	case ch == '-' || isDigit(ch):
		return KindNumber
	}
	return KindInvalid
}

// IsNull reports whether raw is null.
func IsNull(raw []byte) bool { return string(Trim(raw)) == "null" }

// Bool returns the value of true or false; anything else, "true" and 1 included, is ErrKind.
func Bool(raw []byte) (bool, error) {
	switch string(Trim(raw)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, ErrKind
}

// String decodes a checked JSON string; anything else is ErrKind. A string that a text column
// cannot store as it was sent is returned with ErrSurrogate or ErrNUL, whichever occurs first.
// Identities are then refused (G-RL-27); elsewhere the caller may ignore the error and use s, in
// which lone surrogates are replaced by U+FFFD and U+0000 is kept.
func String(raw []byte) (s string, err error) {
	text, err := Bytes(raw)
	return string(text), err
}

// Bytes is String without a copy: the text is a part of raw, unless it has escapes.
func Bytes(raw []byte) (text []byte, err error) {
	raw = Trim(raw)
	if len(raw) < 2 || raw[0] != '"' {
		return nil, ErrKind
	}
	inner := raw[1 : len(raw)-1 : len(raw)-1]
	first := bytes.IndexByte(inner, '\\')
	if first < 0 {
		return inner, nil
	}
	return appendDecoded(make([]byte, 0, len(inner)), inner, first)
}

// unquote is String for names: it copies only where there are escapes, and ignores ErrSurrogate
// and ErrNUL.
func unquote(quoted []byte) []byte {
	inner := quoted[1:max(len(quoted)-1, 1)]
	first := bytes.IndexByte(inner, '\\')
	if first < 0 {
		return inner
	}
	decoded, _ := appendDecoded(make([]byte, 0, len(inner)), inner, first)
	return decoded
}

// appendDecoded appends inner with its escapes resolved; next is the index of the first escape. The
// result is never longer than inner: an escape of six bytes yields at most three bytes, a surrogate
// pair of twelve yields four.
func appendDecoded(dst, inner []byte, next int) (_ []byte, decodeErr error) {
	for next >= 0 {
		dst = append(dst, inner[:next]...)
		r, size := decodeEscape(inner[next:])
		decodeErr = cmp.Or(decodeErr, checkRune(r))
		dst = utf8.AppendRune(dst, r) // writes a surrogate as U+FFFD
		inner = inner[next+size:]
		next = bytes.IndexByte(inner, '\\')
	}
	return append(dst, inner...), decodeErr
}

// checkRune refuses what no text may hold: half of a surrogate pair, and NUL.
func checkRune(r rune) error {
	switch {
	case utf16.IsSurrogate(r):
		return ErrSurrogate
	case r == 0:
		return ErrNUL
	default:
		return nil
	}
}

// decodeEscape returns the rune of the escape at the start of b and the length of the escape, or of
// both escapes of a surrogate pair. A lone surrogate is returned as it is.
func decodeEscape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return utf8.RuneError, len(b)
	}
	switch b[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := decodeHex(b)
		if !ok {
			return utf8.RuneError, 2
		}
		low, _ := decodeHex(b[6:])
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12
		}
		return r, 6
	default: // quote, backslash, slash
		return rune(b[1]), 2
	}
}

// decodeHex reads the \uXXXX at the start of b.
func decodeHex(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, ch := range b[2:6] {
		digit := hexValue[ch]
		if digit < 0 {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}
