package setting

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// Masked is shown in place of a secret.
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

// Secrets is a setting that is a table of texts. Their names are shown and the texts are masked, as
// some of them are credentials. valid reports whether a name may have a text. The error of a wrong
// table calls its entries by nouns, such as headers, and shows example, which is a valid one.
func Secrets(p *map[string]Secret, nouns, example string,
	valid func(name, text string) bool) Value {
	return Value{
		Set: func(in Input) error {
			table, ok := in.Raw.(map[string]any)
			if !ok {
				return fmt.Errorf("expected a table of %s such as %s", nouns, example)
			}
			secrets := map[string]Secret{}
			for _, name := range slices.Sorted(maps.Keys(table)) {
				text, ok := table[name].(string)
				if !ok || !valid(name, text) {
					return fmt.Errorf("expected %s with text; %s is invalid", nouns, Quote(name))
				}
				secrets[name] = NewSecret(text)
			}
			*p = secrets
			return nil
		},
		Show: func() string {
			var all []string
			for _, name := range slices.Sorted(maps.Keys(*p)) {
				all = append(all, name+": "+Masked)
			}
			return strings.Join(all, ", ")
		},
		Table: &Table{Entries: func() map[string]any {
			table := map[string]any{}
			for name, text := range *p {
				table[name] = text.Reveal()
			}
			return table
		}},
	}
}

// StoreKind is a kind of database that the setting store can name.
type StoreKind struct {
	Form    string                 // of the values that name it, for people
	Accepts func(text string) bool // whether a text is such a value
}

// StoreWord is the kind of database that a word names.
func StoreWord(word string) StoreKind {
	return StoreKind{Form: word, Accepts: func(text string) bool { return text == word }}
}

// StoreAt is the kind of database that is named by a URL with one of the schemes.
func StoreAt(schemes ...string) StoreKind {
	return StoreKind{Form: schemes[0] + "://USER:PASSWORD@HOST:PORT/DATABASE with / ? # @ and % in " +
		"the password percent-encoded",
		Accepts: func(text string) bool { return validStoreURL(text, schemes) }}
}

// StoreURL says where jobs are stored: a word, or a URL. It prints its password as ***.
type StoreURL struct{ text *string }

// NewStoreURL wraps text, which must be valid.
func NewStoreURL(text string) StoreURL { return StoreURL{text: &text} }

// Reveal returns the URL with its password.
func (u StoreURL) Reveal() string {
	if u.text == nil {
		return ""
	}
	return *u.text
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
