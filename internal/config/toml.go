package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

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
	tree, err := parseTOML(data)
	if err != nil {
		l.addFileProblem(origin, origin+" is not valid TOML: "+err.Error(), nil)
		return
	}
	p := &pruner{settings: l.settings}
	p.prune(tree, nil)
	slices.Sort(p.refused)
	for _, name := range p.refused {
		l.problems = append(l.problems, l.settings.unknownKey(name, origin))
	}
	flat := map[string]any{}
	l.settings.flatten(tree, "", flat)
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

// parseTOML reads a document. A panic of the library becomes an error, and no error repeats text of
// the document, which may contain a secret.
func parseTOML(data []byte) (tree map[string]any, err error) {
	defer func() {
		if recover() != nil {
			tree, err = nil, errors.New("the parser gave up")
		}
	}()
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, syntaxError(err)
	}
	return tree, nil
}

// pruner takes the keys out of a document that are not settings for their form alone: those with a
// dot inside a member, which would be confused with others, and those that are nested too deep.
type pruner struct {
	settings *Settings
	refused  []string
}

// prune removes the refused keys from a document.
func (p *pruner) prune(tree map[string]any, prefix []string) {
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

// parseEntry reads a text as a file would have it; a text that is no value there is a string.
func parseEntry(text string) any {
	tree, err := parseTOML([]byte("entry = " + text))
	(&pruner{settings: &Settings{}}).prune(tree, nil)
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
