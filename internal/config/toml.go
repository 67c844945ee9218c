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

// document reads the TOML layer.
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
			continue // a section with nothing in it
		}
		l.apply(name, input{raw: flat[name]}, origin)
	}
}

// bytesProvider is a koanf provider of bytes at hand.
type bytesProvider []byte

func (c bytesProvider) ReadBytes() ([]byte, error) { return c, nil }

func (c bytesProvider) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

// parser guards koanf's TOML parser: what it panics on is an error, no error repeats the document's
// text (a secret may stand there), and keys that koanf would mix up, with a dot inside a member or
// nested without end, are set aside.
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

// Marshal is never asked for.
func (p *parser) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

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
			if p.prune(table, path); len(table) == 0 {
				delete(tree, member) // all of it is reported
			}
		}
	}
}

// syntaxError keeps the position and what the parser has to say by itself; strconv's part repeats
// the value.
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
