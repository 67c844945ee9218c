package docsite

import (
	"strconv"
	"strings"
)

// An example is a value that its schema allows, made of what decides first: an enumeration, a
// constant, a default, an example, the first of several choices, the members of an object, the name
// of the member, a pattern or format, the bounds of a number. A member has the same example
// everywhere, unless its schema decides otherwise, so the id in a request is the one in the answer.

// maxExampleDepth bounds how deep an example goes into schemas that contain themselves.
const maxExampleDepth = 5

// example returns a value that a schema allows, as JSON. A test holds each against its schema.
func (n node) example() string {
	var b strings.Builder
	n.writeExample(&b, "", "", 0)
	return b.String()
}

// writeExample writes a value that a schema allows, for a member of a name.
func (n node) writeExample(b *strings.Builder, name, indent string, depth int) {
	s := n.resolved()
	if values := s.get("enum").items(); len(values) > 0 {
		b.WriteString(values[0].json())
		return
	}
	for _, key := range []string{"const", "default", "example"} {
		if value, found := s.find(key); found && value.items() == nil && value.pairs() == nil {
			b.WriteString(value.json())
			return
		}
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		for _, choice := range s.get(key).items() {
			if !choice.isNull() {
				choice.writeExample(b, name, indent, depth)
				return
			}
		}
	}
	members := s.exampleMembers(depth)
	types := s.get("type").words()
	named := namedExamples[name]
	parts := s.get("allOf").items()
	switch {
	case len(members) > 0:
		writeObject(b, members, indent, depth)
	case len(parts) > 0:
		parts[0].writeExample(b, name, indent, depth)
	case named != "" && s.mayBe(named):
		b.WriteString(named)
	case len(types) == 0:
		b.WriteString("{}")
	case types[0] == "object":
		b.WriteString("{}")
	case types[0] == "array":
		s.writeArray(b, name, indent, depth)
	case types[0] == "integer" || types[0] == "number":
		b.WriteString(s.exampleNumber())
	case types[0] == "boolean":
		b.WriteString("true")
	case types[0] == "null":
		b.WriteString("null")
	default:
		b.WriteString(strconv.Quote(s.exampleText()))
	}
}

// mayBe reports whether a schema without a pattern and a format allows a value in JSON, by its
// type.
func (n node) mayBe(value string) bool {
	types := n.get("type").words()
	if len(types) == 0 {
		return value[0] == '{'
	}
	plain := n.get("pattern").text()+n.get("format").text() == ""
	return types[0] == "string" && plain && value[0] == '"'
}

// exampleMembers returns the properties that an example has: all of them, and deep in a schema
// those that are required.
func (n node) exampleMembers(depth int) (all []pair) {
	for _, part := range n.get("allOf").items() {
		all = append(all, part.resolved().exampleMembers(depth)...)
	}
	required := n.get("required").words()
	for _, p := range n.get("properties").pairs() {
		isRequired := false
		for _, name := range required {
			isRequired = isRequired || name == p.key
		}
		if isRequired || depth < maxExampleDepth {
			all = replacePair(all, p)
		}
	}
	max, err := strconv.Atoi(n.get("maxProperties").text())
	if err != nil { // there is no bound
		return all
	}
	return all[:min(max, len(all))]
}

// replacePair adds a property, in the place of an earlier one of its name.
func replacePair(all []pair, p pair) []pair {
	for i := range all {
		if all[i].key == p.key {
			all[i] = p
			return all
		}
	}
	return append(all, p)
}

func writeObject(b *strings.Builder, members []pair, indent string, depth int) {
	within := indent + "  "
	b.WriteString("{")
	for i, p := range members {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n" + within + strconv.Quote(p.key) + ": ")
		p.value.writeExample(b, p.key, within, depth+1)
	}
	b.WriteString("\n" + indent + "}")
}

func (n node) writeArray(b *strings.Builder, name, indent string, depth int) {
	least, _ := strconv.Atoi(n.get("minItems").text())
	if depth >= maxExampleDepth && least == 0 {
		b.WriteString("[]")
		return
	}
	b.WriteString("[")
	for i := range max(1, least) {
		if i > 0 {
			b.WriteString(", ")
		}
		n.get("items").writeExample(b, name, indent, depth+1)
	}
	b.WriteString("]")
}

// exampleNumber returns a number within the bounds of a schema.
func (n node) exampleNumber() string {
	if least := n.get("minimum").text(); least != "" && least != "0" {
		return least
	}
	max, err := strconv.ParseFloat(n.get("maximum").text(), 64)
	if err != nil || max >= 1 {
		return "1"
	}
	return n.get("maximum").text()
}

// exampleText returns a text that a schema allows.
func (n node) exampleText() string {
	switch n.get("format").text() {
	case "date-time":
		return "2026-01-01T12:00:00Z"
	case "uuid":
		return exampleUUID
	case "uri":
		return "https://example.org/"
	}
	if text := patternExamples[n.get("pattern").text()]; text != "" {
		return text
	}
	least, _ := strconv.Atoi(n.get("minLength").text())
	return "text" + strings.Repeat("t", max(0, least-len("text")))
}

// patternExamples has a text for each pattern of the documents that an ordinary word does not have.
var patternExamples = map[string]string{
	"^[0-9]+$": "1", "^wait=[0-9]+$": "wait=20", "^s3://": "s3://millrace/manifest.json",
	"^[Hh][Tt][Tt][Pp][Ss]?://": "https://example.org/",
	"^whsec_":                   "whsec_MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0",
	"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$": exampleUUID,
}

// exampleUUID is the id of what an example is about.
const exampleUUID = "01890a5d-ac96-774b-bcce-b302099a8057"

// namedExamples has the texts of members that mean the same everywhere, and the bodies that may be
// anything.
var namedExamples = map[string]string{
	"id": `"42"`, "job_id": `"42"`, "url": `"https://example.org/"`,
	"callback_url": `"https://example.org/hook"`, "run_at": `"2026-01-01T12:00:00Z"`,
	"queue": `"mail"`, "queues": `"mail"`, "name": `"nightly"`, "contract": `"taskflow"`,
	"worker": `"worker-1"`, "error": `"no such file"`, "error_type": `"input"`,
	"payload": `{"to": "a@example.org"}`, "result": `{"rows": 12}`, "state": `{"sent": 1}`,
	"cron": `"30 2 * * *"`, "time_zone": `"Europe/Berlin"`, "title": `"Not found"`,
	"detail": `"there is no such job"`, "type": `"about:blank"`, "actor": `"operator"`,
}

// json returns a value of a document as JSON.
func (n node) json() string {
	switch n.Tag {
	case "!!int", "!!float", "!!bool":
		return n.Value
	case "!!null":
		return "null"
	}
	return strconv.Quote(n.Value)
}
