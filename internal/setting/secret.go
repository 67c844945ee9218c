package setting

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Masked stands for a secret in what is shown.
const Masked = "***"

// Secret is a string that is never printed: all formats and encodings write ***, or nothing when it
// is empty. The text is behind a pointer, because fmt reads the unexported fields of a struct
// without calling their methods. So == does not compare the texts.
type Secret struct{ text *string }

// NewSecret wraps text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the secret itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty reports whether no secret is set.
func (s Secret) Empty() bool { return s.text == nil }

func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return Masked
}

// GoString masks %#v.
func (s Secret) GoString() string { return s.String() }

// Format masks every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText masks text encodings, map keys among them.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON masks JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// LogValue masks logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

const sqliteStore = "sqlite"

// StoreURL says where jobs are stored: sqlite, which the zero value means, or a PostgreSQL URL. It
// prints its password as ***.
type StoreURL struct{ text *string }

// NewStoreURL wraps text, which must be valid.
func NewStoreURL(text string) StoreURL { return StoreURL{text: &text} }

// Reveal returns the URL with its password.
func (u StoreURL) Reveal() string {
	if u.text == nil {
		return sqliteStore
	}
	return *u.text
}

// Postgres reports whether the store is a PostgreSQL URL.
func (u StoreURL) Postgres() bool {
	return strings.HasPrefix(u.Reveal(), "postgres://") ||
		strings.HasPrefix(u.Reveal(), "postgresql://")
}

func (u StoreURL) String() string { return maskStore(u.Reveal()) }

// GoString masks %#v.
func (u StoreURL) GoString() string { return u.String() }

// Format masks every verb.
func (u StoreURL) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, u.String()) }

// MarshalText masks text encodings.
func (u StoreURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// MarshalJSON masks JSON.
func (u StoreURL) MarshalJSON() ([]byte, error) { return json.Marshal(u.String()) }

// LogValue masks logs.
func (u StoreURL) LogValue() slog.Value { return slog.StringValue(u.String()) }
