package docsite

import (
	"bytes"
	"html"
	"html/template"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The pages of the OpenAPI documents are made of the documents alone. They are read as trees and
// not into types of Go: so members keep the order in which they were written, and what the pages do
// not know of is passed over. All functions here accept a node that is not there, which is empty,
// so that templates need not ask.

// pair is a member of an object of a document.
type pair struct {
	key   string
	value node
}

// get returns a member; one that is not there is empty.
func (n node) get(key string) node {
	found, _ := n.find(key)
	return found
}

// find returns a member, and whether it is there.
func (n node) find(key string) (node, bool) {
	for _, p := range n.pairs() {
		if p.key == key {
			return p.value, true
		}
	}
	return node{root: n.root}, false
}

// pairs returns the members in their order.
func (n node) pairs() (all []pair) {
	if n.Node == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		all = append(all, pair{n.Content[i].Value, node{n.Content[i+1], n.root}})
	}
	return all
}

// items returns the elements of a list.
func (n node) items() (all []node) {
	if n.Node == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	for _, one := range n.Content {
		all = append(all, node{one, n.root})
	}
	return all
}

// text returns a value; "" for one that is not there.
func (n node) text() string {
	if n.Node == nil {
		return ""
	}
	return n.Value
}

// words returns a value that is a text, or a list of them.
func (n node) words() (all []string) {
	if n.Node == nil {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		return []string{n.Value}
	}
	for _, one := range n.items() {
		all = append(all, one.text())
	}
	return all
}

// refersTo returns the name that a reference leads to; "" for a node that is no reference.
func (n node) refersTo() string {
	ref := n.get("$ref").text()
	return ref[strings.LastIndexByte(ref, '/')+1:]
}

// resolved follows a reference.
func (n node) resolved() node {
	ref := n.get("$ref").text()
	if ref == "" {
		return n
	}
	at := node{n.root, n.root}
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.get(name)
	}
	return at.resolved()
}

// isNull reports whether a schema allows nothing but null.
func (n node) isNull() bool { return strings.Join(n.get("type").words(), " ") == "null" }

// shape says in a few words what a schema allows, with a link where it has a name.
func (n node) shape() template.HTML {
	if name := n.refersTo(); name != "" {
		return template.HTML(`<a href="#` + schemaID(name) + `">` + html.EscapeString(name) + "</a>")
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if choices := n.get(key).items(); len(choices) > 0 {
			return joinShapes(choices, " or ")
		}
	}
	if parts := n.get("allOf").items(); len(parts) > 0 {
		return joinShapes(parts, " with ")
	}
	if values := n.get("enum").words(); len(values) > 0 {
		for i := range values {
			values[i] = "<code>" + html.EscapeString(values[i]) + "</code>"
		}
		return template.HTML(strings.Join(values, ", "))
	}
	if value, found := n.find("const"); found {
		return template.HTML("<code>" + html.EscapeString(value.text()) + "</code>")
	}
	types := n.get("type").words()
	if len(types) == 0 {
		return "any value"
	}
	text := strings.Join(types, " or ")
	if types[0] == "array" {
		text = strings.Replace(text, "array", "array of "+string(n.get("items").shape()), 1)
		return template.HTML(text + n.limits())
	}
	if format := n.get("format").text(); format != "" {
		text = strings.Replace(text, "string", format, 1)
	}
	return template.HTML(text + n.limits())
}

// joinShapes joins the shapes of schemas.
func joinShapes(all []node, between string) template.HTML {
	var shapes []string
	for _, one := range all {
		shapes = append(shapes, string(one.shape()))
	}
	return template.HTML(strings.Join(shapes, between))
}

// limits says what else a schema demands of a value.
func (n node) limits() string {
	var all []string
	for _, bound := range []struct{ key, text string }{
		{"minimum", "from "}, {"exclusiveMinimum", "above "}, {"maximum", "to "},
		{"exclusiveMaximum", "below "}, {"minLength", "characters from "},
		{"maxLength", "characters to "}, {"minItems", "items from "}, {"maxItems", "items to "},
		{"pattern", "pattern "}, {"default", "default "},
	} {
		if value, found := n.find(bound.key); found && value.text() != "" {
			all = append(all, bound.text+"<code>"+html.EscapeString(value.text())+"</code>")
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ` <span class="quiet">` + strings.Join(all, ", ") + "</span>"
}

// members returns the properties of an object, those of objects within it below theirs. What has a
// name is not repeated.
func (n node) members(prefix string) (all []member) {
	for _, part := range n.get("allOf").items() {
		if part.refersTo() == "" {
			all = append(all, part.members(prefix)...)
		}
	}
	required := n.get("required").words()
	for _, p := range n.get("properties").pairs() {
		m := member{Name: prefix + p.key, Type: p.value.shape(),
			Description: prose(p.value.get("description").text())}
		for _, name := range required {
			m.Required = m.Required || name == p.key
		}
		all = append(all, m)
		all = append(all, p.value.members(m.Name+".")...)
		all = append(all, p.value.get("items").members(m.Name+"[].")...)
	}
	if prefix == "" {
		all = append(all, n.get("items").members("[].")...)
	}
	return all
}

// prose returns a text of a document as HTML.
func prose(text string) template.HTML {
	if text == "" {
		return ""
	}
	var out bytes.Buffer
	if err := markdown.Convert([]byte(text), &out); err != nil {
		panic(err) // a document is part of this program
	}
	return template.HTML(out.String())
}
