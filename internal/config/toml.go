package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/v2"
)

const (
	maxFileSize = 1 << 20
	maxDepth    = 8
)

// document applies the layer of a TOML document.
func (l *loader) document(data []byte, origin string) {
	if len(data) > maxFileSize {
		l.addFileProblem(origin, fmt.Sprintf("%s cannot be read: larger than %s", origin,
			formatSize(maxFileSize)), nil)
		return
	}
	p := &parser{}
	k := koanf.New(".")
	if err := k.Load(bytesProvider(data), p); err != nil {
		l.addFileProblem(origin, origin+" is not valid TOML: "+err.Error(), nil)
		return
	}
	for _, name := range p.refused {
		l.problems = append(l.problems, unknownKey(name, origin))
	}
	flat := flatten(k.Raw(), "", map[string]any{})
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		if table, ok := flat[name].(map[string]any); ok && len(table) == 0 && isSection(name) {
			if n, of, _ := findNamedSection(name); n != nil && n.declare != nil && of != "" {
				n.declare(&l.settings, of)
			}
			continue // an empty section
		}
		l.apply(name, input{raw: flat[name]}, origin)
	}
}

// bytesProvider is a koanf provider of bytes in memory.
type bytesProvider []byte

func (c bytesProvider) ReadBytes() ([]byte, error) { return c, nil }

func (c bytesProvider) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

// parser wraps koanf's TOML parser. A panic becomes an error, no error repeats text of the
// document, which may contain a secret, and keys that koanf would confuse, with a dot inside a
// member or nested too deep, are refused.
type parser struct{ refused []string }

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
		case isTable && isTableKey(strings.Join(path, ".")):
		case member == "" || (strings.Contains(member, ".") &&
			!allowsDots(strings.Join(prefix, "."))):
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

// syntaxError keeps the position and the parser's own text. The text of strconv is dropped, since
// it repeats the value.
func syntaxError(err error) error {
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "toml: "), ": strconv.")
	text = printable(text)
	if at, ok := errors.AsType[interface {
		error
		Position() (row, column int)
	}](err); ok {
		row, column := at.Position()
		return fmt.Errorf("line %d, column %d: %s", row, column, text)
	}
	return errors.New(text)
}
