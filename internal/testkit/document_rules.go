package testkit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// reserved are names of types and operations that collide with those of the languages code is generated for.
var reserved = []string{"client", "delete", "error", "event", "file", "get", "headers", "next", "object", "range", "request", "response"}

// documentFaults says what a document lacks that linters and generators need (decision 0034).
func documentFaults(doc *openapi3.T) []string {
	f := &faults{names: map[string]string{}}
	f.check("the version "+doc.OpenAPI, strings.HasPrefix(doc.OpenAPI, "3.1."))
	f.check("the license", doc.Info.License != nil && doc.Info.License.Identifier != "")
	f.check("the servers", len(doc.Servers) > 0)
	f.described("info", doc.Info.Description)
	for _, tag := range doc.Tags {
		f.described("the tag "+tag.Name, tag.Description)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			f.operation(method+" "+path, op)
		}
	}
	f.components(doc.Components)
	slices.Sort(f.found)
	return f.found
}

type faults struct {
	found []string
	names map[string]string // of components, as generators see them, to where they are
}

func (f *faults) check(what string, ok bool) {
	if !ok {
		f.found = append(f.found, what+" is not as it has to be")
	}
}

func (f *faults) described(what, description string) {
	f.check("the description of "+what, strings.TrimSpace(description) != "")
}

// name takes a name, which has to be unique without regard to case and punctuation.
func (f *faults) name(where, name string) {
	seen := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	if slices.Contains(reserved, seen) {
		f.found = append(f.found, fmt.Sprintf("the name %s of %s is reserved in other languages", name, where))
	}
	if other := f.names[seen]; other != "" {
		f.found = append(f.found, fmt.Sprintf("the name %s of %s collides with one of %s", name, where, other))
	}
	f.names[seen] = where
}

func (f *faults) operation(at string, op *openapi3.Operation) {
	f.described(at, op.Description)
	f.check("the id of "+at, op.OperationID != "" && !slices.Contains(reserved, strings.ToLower(op.OperationID)))
	for _, p := range op.Parameters {
		f.described(at+", "+p.Value.Name, p.Value.Description)
	}
	for status, r := range op.Responses.Map() {
		f.described(at+", "+status, *r.Value.Description)
	}
}

func (f *faults) components(c *openapi3.Components) {
	for _, name := range slices.Sorted(maps.Keys(c.Parameters)) {
		f.name("parameters", name)
		f.described("the parameter "+name, c.Parameters[name].Value.Description)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		f.described("the header "+name, c.Headers[name].Value.Description)
	}
	for _, name := range slices.Sorted(maps.Keys(c.RequestBodies)) {
		f.name("request bodies", name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Responses)) {
		f.name("responses", name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Schemas)) {
		f.name("schemas", name)
		f.schema("the schema "+name, c.Schemas[name])
	}
}

// schema descends to where another schema is referred to, which is described itself.
func (f *faults) schema(at string, s *openapi3.SchemaRef) {
	if s.Ref != "" {
		return
	}
	f.described(at, s.Value.Description)
	f.check("nullable in "+at+", which is not of 3.1,", !s.Value.Nullable)
	for name, p := range s.Value.Properties {
		f.schema(at+"."+name, p)
	}
}
