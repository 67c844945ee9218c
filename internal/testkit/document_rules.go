package testkit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// reservedNames are names of types and operations that collide with names in the languages for
// which clients are generated.
var reservedNames = []string{"client", "delete", "error", "event", "file", "get", "headers", "next",
	"object", "range", "request", "response"}

// documentProblems returns what a document lacks for linters and generators (decision 0034). It
// holds what linters and generators would find, without running them in every test; .ci runs them
// too.
func documentProblems(doc *openapi3.T) []string {
	f := &documentChecker{names: map[string]string{}}
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
	slices.Sort(f.problems)
	return f.problems
}

// documentChecker collects the problems of a document. All of them are reported at once, in a fixed
// order.
type documentChecker struct {
	problems []string
	names    map[string]string // the kind of component by its normalized name
}

// check notes a problem unless ok.
func (f *documentChecker) check(what string, ok bool) {
	if !ok {
		f.problems = append(f.problems, what+" is not as it has to be")
	}
}

// described checks that something has a description, which generators copy into the clients.
func (f *documentChecker) described(what, description string) {
	f.check("the description of "+what, strings.TrimSpace(description) != "")
}

// name checks that a name is unique without regard to case and punctuation, as generators need it.
func (f *documentChecker) name(where, name string) {
	normalized := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	if slices.Contains(reservedNames, normalized) {
		f.problems = append(f.problems,
			fmt.Sprintf("the name %s of %s is reserved in other languages", name, where))
	}
	if other := f.names[normalized]; other != "" {
		f.problems = append(f.problems, fmt.Sprintf("the name %s of %s collides with one of %s",
			name, where, other))
	}
	f.names[normalized] = where
}

// operation checks one operation: its description and id, and what it takes and answers.
func (f *documentChecker) operation(at string, op *openapi3.Operation) {
	f.described(at, op.Description)
	f.check("the id of "+at, op.OperationID != "" &&
		!slices.Contains(reservedNames, strings.ToLower(op.OperationID)))
	for _, p := range op.Parameters {
		f.described(at+", "+p.Value.Name, p.Value.Description)
	}
	for status, r := range op.Responses.Map() {
		f.described(at+", "+status, *r.Value.Description)
	}
}

// components checks the parts that operations share. Their names become types in clients.
func (f *documentChecker) components(c *openapi3.Components) {
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

// schema checks a schema and those within it. It stops at references, whose targets are components.
// Every member needs a description, so that a client's code explains itself.
func (f *documentChecker) schema(at string, s *openapi3.SchemaRef) {
	if s.Ref != "" {
		return
	}
	f.described(at, s.Value.Description)
	f.check("nullable in "+at+", which 3.1 does not have,", !s.Value.Nullable)
	for name, p := range s.Value.Properties {
		f.schema(at+"."+name, p)
	}
}
