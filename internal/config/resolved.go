package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/millrace/millrace/internal/setting"
)

// Entry is one resolved setting as `millrace config` shows it.
type Entry struct {
	Key         string `json:"key"`
	Value       string `json:"value"` // secrets masked
	Origin      string `json:"origin"`
	Default     string `json:"-"` // as it would be written
	Description string `json:"doc"`
}

// Entries is a list that can write itself.
type Entries []Entry

// Resolved lists every setting, sorted by key.
func (s *Settings) Resolved() Entries {
	entries := make(Entries, 0, len(s.keys))
	for _, k := range slices.Concat(s.keys, s.namedKeys()) {
		entries = append(entries, Entry{Key: k.Name, Value: k.Value.Show(),
			Origin: s.origin(k.Name), Default: k.Default, Description: k.Description})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

// origin says where the key's value was written.
func (s *Settings) origin(name string) string {
	return cmp.Or(s.origins[name], originDefault)
}

// WriteText writes one aligned line for each setting: key, value, origin.
func (e Entries) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, x := range e {
		if _, err := fmt.Fprintf(t, "%s\t%s\t%s\n", x.Key, setting.Printable(x.Value),
			setting.Printable(x.Origin)); err != nil {
			return err
		}
	}
	return t.Flush()
}

// WriteJSON writes an array of entries.
func (e Entries) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(e)
}
