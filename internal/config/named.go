package config

import (
	"slices"
	"strings"
)

// named declares a section that has the same settings for each of many names, such as [taskflow.queues.NAME].
type named struct {
	section string
	dots    bool                     // a name may hold dots
	valid   func(name string) bool   // whether a name is one
	allowed string                   // what a valid name is
	names   func(*Settings) []string // that have settings
	declare func(*Settings, string)  // what a section with nothing in it does; nil: nothing
	members []member
}

// member declares one setting of every name.
type member struct {
	name string
	doc  string
	bind func(s *Settings, name string) value
}

var nameds = []*named{queues, jobTypeSection, pools}

// anyName stands for a name where none is known.
const anyName = "NAME"

// letters are what names in settings are made of; some have dots and hyphens as well.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// key is the setting of one name.
func (n *named) key(name string, m *member) key {
	return key{name: n.section + "." + name + "." + m.name, doc: m.doc, bind: func(s *Settings) value { return m.bind(s, name) }}
}

// below gives what stands after the section in a key.
func (n *named) below(key string) (string, bool) { return strings.CutPrefix(key, n.section+".") }

// findNamed is find for the keys of named sections.
func findNamed(at string) (key, bool) {
	for _, n := range nameds {
		rest, below := n.below(at)
		for i := range n.members {
			name, is := strings.CutSuffix(rest, "."+n.members[i].name)
			if below && is && n.valid(name) {
				return n.key(name, &n.members[i]), true
			}
		}
	}
	return key{}, false
}

// sectionNamed tells whether a key is a named section, or the part of one that belongs to a name.
func sectionNamed(at string) (n *named, name string, is bool) {
	if _, is := findNamed(at); is {
		return nil, "", false
	}
	for _, n := range nameds {
		rest, below := n.below(at)
		if at == n.section || below && n.valid(rest) {
			return n, rest, true
		}
		if strings.HasPrefix(n.section, at+".") {
			return n, "", true
		}
	}
	return nil, "", false
}

// namedLike are the keys that an unknown one in a named section may have been meant to be.
func namedLike(at string) []string {
	var like []string
	for _, n := range nameds {
		rest, below := n.below(at)
		if at != n.section && !below {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !below || !n.valid(name) {
			name = anyName
		}
		for i := range n.members {
			like = append(like, n.key(name, &n.members[i]).name)
		}
	}
	return like
}

// nameHint says what a key's NAME may be.
func nameHint(key string) string {
	for _, n := range nameds {
		if rest, below := n.below(key); below && strings.HasPrefix(rest, anyName+".") {
			return " " + anyName + " is " + n.allowed
		}
	}
	return ""
}

// namedKeys are the keys of the names that have settings.
func (s *Settings) namedKeys() []key {
	var all []key
	for _, n := range nameds {
		for _, name := range slices.Sorted(slices.Values(n.names(s))) {
			for i := range n.members {
				all = append(all, n.key(name, &n.members[i]))
			}
		}
	}
	return all
}

// dotted tells whether the members of a table are names that may hold dots.
func dotted(section string) bool {
	return slices.ContainsFunc(nameds, func(n *named) bool { return n.dots && n.section == section })
}

// tabled is a value that is written as a table. Where there is only text, in the environment and in flags, its entries are
// keys of their own.
type tabled interface {
	value
	table() map[string]any // a copy of what is stored, as a file would have it
	entry(text string) any // what text means as an entry
}

// entryValue is one entry of a table.
type entryValue struct {
	tabled
	name string
}

func (v entryValue) set(in input) error {
	text, _ := in.word()
	table := v.table()
	table[v.name] = v.entry(text)
	return v.tabled.set(input{raw: table})
}

// findEntry is find for the entries of tables; it gives the key of the table.
func findEntry(at string) (key, bool) {
	for i, r := range at {
		if entry := at[i:]; r == '.' && len(entry) > 1 && takesTable(at[:i]) {
			k, _ := findNamed(at[:i])
			table := k.bind
			k.bind = func(s *Settings) value { return entryValue{table(s).(tabled), entry[1:]} }
			return k, true
		}
	}
	return key{}, false
}

// takesTable tells whether a key's value is a table, whose members are no keys.
func takesTable(at string) bool {
	k, ok := findNamed(at)
	if !ok {
		return false
	}
	_, ok = k.bind(new(Settings)).(tabled)
	return ok
}

// flatten gives the keys of a document with their values.
func flatten(tree map[string]any, above string, flat map[string]any) map[string]any {
	for name, v := range tree {
		if table, is := v.(map[string]any); is && len(table) > 0 && !takesTable(above+name) {
			flatten(table, above+name+".", flat)
			continue
		}
		flat[above+name] = v
	}
	return flat
}
