package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/v2"

	"github.com/millrace/millrace/internal/setting"
)

const (
	maxFileSize = 1 << 20
	maxDepth    = 8
)

// document applies the layer of a TOML document.
func (l *loader) document(data []byte, origin string) {
	if len(data) > maxFileSize {
		l.addFileProblem(origin, fmt.Sprintf("%s cannot be read: larger than %s", origin,
			setting.FormatSize(maxFileSize)), nil)
		return
	}
	p := &parser{settings: l.settings}
	k := koanf.New(".")
	if err := k.Load(bytesProvider(data), p); err != nil {
		l.addFileProblem(origin, origin+" is not valid TOML: "+err.Error(), nil)
		return
	}
	for _, name := range p.refused {
		l.problems = append(l.problems, l.settings.unknownKey(name, origin))
	}
	flat := map[string]any{}
	l.settings.flatten(k.Raw(), "", flat)
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		if table, ok := flat[name].(map[string]any); ok && len(table) == 0 && l.settings.isSection(name) {
			if n, item, _ := l.settings.findSection(name); n != nil && n.AddEmpty && item != "" {
				n.Items.Add(item)
			}
			continue // an empty section
		}
		l.apply(name, setting.Input{Raw: flat[name]}, origin)
	}
}

// bytesProvider is a koanf provider of bytes in memory.
type bytesProvider []byte

// ReadBytes implements koanf.Provider.
func (c bytesProvider) ReadBytes() ([]byte, error) { return c, nil }

// Read is part of koanf.Provider and not used.
func (c bytesProvider) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

// parser wraps koanf's TOML parser. A panic becomes an error, no error repeats text of the
// document, which may contain a secret, and keys that koanf would confuse, with a dot inside a
// member or nested too deep, are refused.
type parser struct {
	settings *Settings
	refused  []string
}

// Unmarshal implements koanf.Parser. It collects the refused keys in p.
func (p *parser) Unmarshal(data []byte) (tree map[string]any, err error) {
	defer func() {
		if recover() != nil {
			tree, err = nil, errors.New("the parser gave up")
		}
	}()
	tree, err = toml.Parser().Unmarshal(data)
	if err != nil {
		return nil, syntaxError(err)
	}
	p.prune(tree, nil)
	slices.Sort(p.refused)
	return tree, nil
}

// Marshal is part of koanf.Parser and not used.
func (p *parser) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

// prune removes the refused keys from a document.
func (p *parser) prune(tree map[string]any, prefix []string) {
	for member, v := range tree {
		path := append(slices.Clone(prefix), member)
		table, isTable := v.(map[string]any)
		switch {
		case isTable && p.settings.isTableKey(strings.Join(path, ".")):
		case member == "" || (strings.Contains(member, ".") &&
			!p.settings.allowsDots(strings.Join(prefix, "."))):
			path[len(prefix)] = "'" + member + "'"
			p.refused = append(p.refused, strings.Join(path, "."))
			delete(tree, member)
		case isTable && len(path) == maxDepth:
			p.refused = append(p.refused, strings.Join(path, ".")+".…")
			delete(tree, member)
		case isTable && len(table) > 0:
			p.prune(table, path)
			if len(table) == 0 {
				delete(tree, member) // all its keys were refused
			}
		}
	}
}

// parseEntry reads a text as a file would have it; what is nothing there is a string.
func parseEntry(text string) any {
	tree, err := (&parser{settings: &Settings{}}).Unmarshal([]byte("entry = " + text))
	if err != nil || len(tree) != 1 || tree["entry"] == nil {
		return text
	}
	return tree["entry"]
}

// syntaxError keeps the position and the parser's own text. The text of strconv is dropped, since
// it repeats the value.
func syntaxError(err error) error {
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "toml: "), ": strconv.")
	text = setting.Printable(text)
	if at, ok := errors.AsType[interface {
		error
		Position() (row, column int)
	}](err); ok {
		row, column := at.Position()
		return fmt.Errorf("line %d, column %d: %s", row, column, text)
	}
	return errors.New(text)
}
