package config

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// namePlaceholder stands for a name where none is known.
const namePlaceholder = "NAME"

// members returns the settings of one name of a section.
func members(n *setting.Section, name string) []setting.Key {
	keys := n.Items.Members(name)
	for i := range keys {
		keys[i].Name = n.Name + "." + name + "." + keys[i].Name
	}
	return keys
}

// suffix returns the part of a key after the section.
func suffix(n *setting.Section, key string) (string, bool) {
	return strings.CutPrefix(key, n.Name+".")
}

// findItem returns the section of a key, and the name that the key belongs to there.
func (s *Settings) findItem(at string) (n *setting.Section, name string, ok bool) {
	for _, n := range s.sections {
		rest, below := suffix(n, at)
		for _, member := range n.Items.Members(namePlaceholder) {
			name, ok := strings.CutSuffix(rest, "."+member.Name)
			if below && ok && n.Valid(name) {
				return n, name, true
			}
		}
	}
	return nil, "", false
}

// findNamed is find for the keys of sections.
func (s *Settings) findNamed(at string) (setting.Key, bool) {
	n, name, ok := s.findItem(at)
	if !ok {
		return setting.Key{}, false
	}
	keys := members(n, name)
	return keys[slices.IndexFunc(keys, func(k setting.Key) bool { return k.Name == at })], true
}

// findSection reports whether a key is a section or the part of one for a name.
func (s *Settings) findSection(at string) (n *setting.Section, name string, ok bool) {
	if _, _, ok := s.findItem(at); ok {
		return nil, "", false
	}
	for _, n := range s.sections {
		rest, below := suffix(n, at)
		if at == n.Name || (below && n.Valid(rest)) {
			return n, rest, true
		}
		if strings.HasPrefix(n.Name, at+".") {
			return n, "", true
		}
	}
	return nil, "", false
}

// similarNamedKeys are the keys that an unknown one in a section may have been meant to be.
func (s *Settings) similarNamedKeys(at string) []string {
	var similar []string
	for _, n := range s.sections {
		rest, below := suffix(n, at)
		if at != n.Name && !below {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !below || !n.Valid(name) {
			name = namePlaceholder
		}
		for _, k := range members(n, name) {
			similar = append(similar, k.Name)
		}
	}
	return similar
}

// nameHint says what a key's NAME may be.
func (s *Settings) nameHint(key string) string {
	for _, n := range s.sections {
		if rest, below := suffix(n, key); below && strings.HasPrefix(rest, namePlaceholder+".") {
			return " " + namePlaceholder + " is " + n.ValidNames
		}
	}
	return ""
}

// namedKeys are the keys of the names that have settings.
func (s *Settings) namedKeys() []setting.Key {
	var all []setting.Key
	for _, n := range s.sections {
		for _, name := range n.Items.Names() {
			all = append(all, members(n, name)...)
		}
	}
	return all
}

// allowsDots reports whether the members of a table are names that may contain dots.
func (s *Settings) allowsDots(section string) bool {
	return slices.ContainsFunc(s.sections, func(n *setting.Section) bool {
		return n.AllowDots && n.Name == section
	})
}

// findEntry is find for the entries of tables: it returns the key of the table, with a value that
// adds the entry to what the table has.
func (s *Settings) findEntry(at string) (setting.Key, bool) {
	for i, r := range at {
		entry := at[i:]
		if r != '.' || len(entry) < 2 || !s.isTableKey(at[:i]) {
			continue
		}
		k, _ := s.bind(at[:i])
		table := k.Value
		k.Value.Secret = true
		k.Value.Set = func(in setting.Input) error {
			text, _ := in.Text()
			entries := table.Table.Entries()
			entries[entry[1:]] = text
			if table.Table.Typed {
				entries[entry[1:]] = parseEntry(text)
			}
			return table.Set(setting.Input{Raw: entries})
		}
		return k, true
	}
	return setting.Key{}, false
}

// isTableKey reports whether the value of a key is a table, whose members are not keys.
func (s *Settings) isTableKey(at string) bool {
	k, ok := s.findNamed(at)
	return ok && k.Value.Table != nil
}

// flatten adds the keys of a document to result, with their values.
func (s *Settings) flatten(tree map[string]any, prefix string, result map[string]any) {
	for name, v := range tree {
		if table, isTable := v.(map[string]any); isTable && len(table) > 0 &&
			!s.isTableKey(prefix+name) {
			s.flatten(table, prefix+name+".", result)
			continue
		}
		result[prefix+name] = v
	}
}
