package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/getkin/kin-openapi/openapi3"
)

// maker makes request bodies from the schemas of a document.
type maker struct {
	values map[string]string // of members, by their names
	count  atomic.Int64      // makes names that are not there yet
}

// newMaker returns a maker whose bodies name what was planted.
func (n *hostileNode) newMaker() *maker {
	return &maker{values: map[string]string{
		"url": `"http://127.0.0.1:9/"`, "callback_url": `"http://127.0.0.1:9/"`,
		"contract": `"taskflow"`, "queue": `"texts"`, "type": `"EXECUTE"`,
		"request": `{"name":"n","queue":"texts"}`, "work_kind": `"SUCCESS_FAST"`,
		"file_id": quoted(n.values["images {file_id}"]), "job_id": quoted(n.values["images {job_id}"]),
		"run_id": quoted(n.values["relay {run_id}"]), "events": `["job_failed"]`,
		"action": `"rerun"`, "filter": `{"queue":"none"}`, "outcomes": `[]`}}
}

// quoted is a text as JSON.
func quoted(text string) string { b, _ := json.Marshal(text); return string(b) }

// merged is a schema with what allOf adds; of alternatives it is the first that is not null.
func merged(ref *openapi3.SchemaRef) *openapi3.Schema {
	s := *ref.Value
	s.Properties = maps.Clone(s.Properties)
	if s.Properties == nil {
		s.Properties = openapi3.Schemas{}
	}
	for _, part := range s.AllOf {
		p := merged(part)
		maps.Copy(s.Properties, p.Properties)
		s.Required = append(slices.Clone(s.Required), p.Required...)
		if s.Type == nil {
			s.Type, s.Enum, s.Items, s.Format = p.Type, p.Enum, p.Items, p.Format
			s.MinItems, s.MinLength = p.MinItems, p.MinLength
		}
	}
	for _, alternative := range slices.Concat(s.OneOf, s.AnyOf) {
		if p := merged(alternative); !p.Type.Is("null") {
			return p
		}
	}
	return &s
}

// sample makes a valid value with what is required alone.
func (m *maker) sample(name string, ref *openapi3.SchemaRef) string {
	if value, ok := m.values[name]; ok {
		return value
	}
	s := merged(ref)
	switch {
	case len(s.Enum) > 0:
		b, _ := json.Marshal(s.Enum[0])
		return string(b)
	case s.Type.Includes("object"):
		return m.object(s, "", "")
	case s.Type.Includes("array"):
		if s.MinItems == 0 || s.Items == nil {
			return "[]"
		}
		return "[" + m.sample("", s.Items) + "]"
	case s.Type.Includes("string"):
		switch s.Format {
		case "uuid":
			return `"01890000-0000-7000-8000-000000000000"`
		case "date-time":
			return `"2031-01-01T00:00:00Z"`
		}
		return fmt.Sprintf(`"n%d"`, m.count.Add(1))
	case s.Type.Includes("integer"):
		if s.Min != nil {
			return fmt.Sprint(max(1, int(*s.Min)))
		}
		return "1"
	case s.Type.Includes("boolean"):
		return "true"
	}
	return "1"
}

// object makes an object of what is required and, unless it is empty, one member with a value.
func (m *maker) object(s *openapi3.Schema, name, value string) string {
	var members []string
	for _, required := range s.Required {
		if required != name {
			members = append(members, quoted(required)+":"+m.sample(required, s.Properties[required]))
		}
	}
	if name != "" {
		members = append(members, quoted(name)+":"+value)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// textPlace is where a text may stand in a body.
type textPlace struct {
	name string
	body func(value string) string // the body with a JSON value in its place
	// isIgnored says that it is the name of a member that no route knows.
	isIgnored bool
}

// places returns where texts may stand in a value of a schema: each string and each value of any
// type, in members that are required or not, and names of members where any may be.
func (m *maker) places(name string, ref *openapi3.SchemaRef, depth int) (all []textPlace) {
	s := merged(ref)
	isAny := s.Type == nil && len(s.Properties) == 0
	switch {
	case depth > 4:
		return nil
	case isAny || s.Type.Includes("string"):
		all = append(all, textPlace{name: name, body: func(value string) string { return value }})
	case s.Type.Includes("array") && s.Items != nil:
		for _, inner := range m.places(name+"[]", s.Items, depth+1) {
			all = append(all, textPlace{name: inner.name, isIgnored: inner.isIgnored,
				body: func(value string) string { return "[" + inner.body(value) + "]" }})
		}
	case s.Type.Includes("object"):
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			for _, inner := range m.places(name+"."+member, s.Properties[member], depth+1) {
				all = append(all, textPlace{name: inner.name, isIgnored: inner.isIgnored,
					body: func(value string) string {
						return m.object(s, member, inner.body(value))
					}})
			}
		}
		if s.AdditionalProperties.Has == nil || *s.AdditionalProperties.Has {
			all = append(all, textPlace{name: name + ".*", isIgnored: len(s.Properties) > 0 || depth == 0,
				body: func(value string) string {
					object := strings.TrimSuffix(m.object(s, "", ""), "}")
					if object != "{" {
						object += ","
					}
					return object + value + `:"x"}`
				}})
		}
	}
	return all
}

// schemaOf returns the schema of a route's JSON body; nil where it takes none.
func (r hostileRoute) schemaOf() *openapi3.SchemaRef {
	if r.operation == nil || r.operation.RequestBody == nil {
		return nil
	}
	content := r.operation.RequestBody.Value.Content["application/json"]
	if content == nil {
		return nil
	}
	return content.Schema
}
