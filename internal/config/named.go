package config

import (
	"slices"
	"strings"
)

// namedSection declares a section that has the same settings for each of many names, such as
// [taskflow.queues.NAME].
type namedSection struct {
	section    string
	allowDots  bool                     // a name may hold dots
	valid      func(name string) bool   // whether a name is one
	validNames string                   // what a valid name is
	names      func(*Settings) []string // that have settings
	declare    func(*Settings, string)  // what a section with nothing in it does; nil: nothing
	members    []member
}

// member declares one setting of every name.
type member struct {
	name        string
	description string
	bind        func(s *Settings, name string) value
}

var namedSections = []*namedSection{queueSection, jobTypeSection, proxyPoolSection}

// namePlaceholder stands for a name where none is known.
const namePlaceholder = "NAME"

// nameLetters are what names in settings are made of; some have dots and hyphens as well.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// key is the setting of one name.
func (n *namedSection) key(name string, m *member) key {
	return key{name: n.section + "." + name + "." + m.name, description: m.description,
		bind: func(s *Settings) value {
			return m.bind(s, name)
		}}
}

// suffix returns the part of a key after the section.
func (n *namedSection) suffix(key string) (string, bool) {
	return strings.CutPrefix(key, n.section+".")
}

// findNamedKey is find for the keys of named sections.
func findNamedKey(at string) (key, bool) {
	for _, n := range namedSections {
		rest, suffix := n.suffix(at)
		for i := range n.members {
			name, ok := strings.CutSuffix(rest, "."+n.members[i].name)
			if suffix && ok && n.valid(name) {
				return n.key(name, &n.members[i]), true
			}
		}
	}
	return key{}, false
}

// findNamedSection reports whether a key is a named section or the part of one for a name.
func findNamedSection(at string) (n *namedSection, name string, ok bool) {
	if _, ok := findNamedKey(at); ok {
		return nil, "", false
	}
	for _, n := range namedSections {
		rest, below := n.suffix(at)
		if at == n.section || (below && n.valid(rest)) {
			return n, rest, true
		}
		if strings.HasPrefix(n.section, at+".") {
			return n, "", true
		}
	}
	return nil, "", false
}

// similarNamedKeys are the keys that an unknown one in a named section may have been meant to be.
func similarNamedKeys(at string) []string {
	var similar []string
	for _, n := range namedSections {
		rest, suffix := n.suffix(at)
		if at != n.section && !suffix {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !suffix || !n.valid(name) {
			name = namePlaceholder
		}
		for i := range n.members {
			similar = append(similar, n.key(name, &n.members[i]).name)
		}
	}
	return similar
}

// nameHint says what a key's NAME may be.
func nameHint(key string) string {
	for _, n := range namedSections {
		if rest, suffix := n.suffix(key); suffix && strings.HasPrefix(rest, namePlaceholder+".") {
			return " " + namePlaceholder + " is " + n.validNames
		}
	}
	return ""
}

// namedKeys are the keys of the names that have settings.
func (s *Settings) namedKeys() []key {
	var all []key
	for _, n := range namedSections {
		for _, name := range slices.Sorted(slices.Values(n.names(s))) {
			for i := range n.members {
				all = append(all, n.key(name, &n.members[i]))
			}
		}
	}
	return all
}

// allowsDots reports whether the members of a table are names that may contain dots.
func allowsDots(section string) bool {
	return slices.ContainsFunc(namedSections, func(n *namedSection) bool {
		return n.allowDots && n.section == section
	})
}

// tableValue is a value that is written as a table. Where there is only text, in the environment
// and in flags, its entries are keys of their own.
type tableValue interface {
	value
	table() map[string]any // a copy of what is stored, as a file would have it
	entry(text string) any // what text means as an entry
}

// entryValue is one entry of a table.
type entryValue struct {
	tableValue
	name string
}

func (v entryValue) set(in input) error {
	text, _ := in.textValue()
	table := v.table()
	table[v.name] = v.entry(text)
	return v.tableValue.set(input{raw: table})
}

// findEntry is find for the entries of tables; it gives the key of the table.
func findEntry(at string) (key, bool) {
	for i, r := range at {
		if entry := at[i:]; r == '.' && len(entry) > 1 && isTableKey(at[:i]) {
			k, _ := findNamedKey(at[:i])
			table := k.bind
			k.bind = func(s *Settings) value { return entryValue{table(s).(tableValue), entry[1:]} }
			return k, true
		}
	}
	return key{}, false
}

// isTableKey reports whether the value of a key is a table, whose members are not keys.
func isTableKey(at string) bool {
	k, ok := findNamedKey(at)
	if !ok {
		return false
	}
	_, ok = k.bind(new(Settings)).(tableValue)
	return ok
}

// flatten returns the keys of a document with their values.
func flatten(tree map[string]any, prefix string, result map[string]any) map[string]any {
	for name, v := range tree {
		if table, isTable := v.(map[string]any); isTable && len(table) > 0 &&
			!isTableKey(prefix+name) {
			flatten(table, prefix+name+".", result)
			continue
		}
		result[prefix+name] = v
	}
	return result
}
