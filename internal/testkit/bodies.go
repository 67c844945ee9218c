package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// bodyValidator validates JSON bodies by JSON Schema 2020-12, the dialect of OpenAPI 3.1. What
// kin-openapi validates by itself follows the rules of 3.0, which are more lenient (decision 0034).
// Schemas are compiled at their first use and kept: the document of a contract has hundreds, of
// which a test uses few.
type bodyValidator struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // compiled, by their location in the document
}

// documentURL is the name of the document for references inside of it; nothing is loaded from it.
const documentURL = "urn:document"

// newBodyValidator prepares the schemas of a document. It fails the test if the document is no
// JSON.
func newBodyValidator(tb testing.TB, doc *openapi3.T) *bodyValidator {
	tb.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		tb.Fatal(err)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, root); err != nil {
		tb.Fatal(err)
	}
	return &bodyValidator{compiler: compiler, schemas: map[string]*jsonschema.Schema{}}
}

// validate checks a body by the document's schema for its media type. location is the JSON pointer
// of the request body or the response. Of JSON lines each must be valid. A document without content
// for an answer allows no check of its body.
func (b *bodyValidator) validate(location string, content openapi3.Content, contentType string,
	body []byte) error {
	if len(content) == 0 {
		return nil
	}
	name, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("the content type %q is malformed: %w", contentType, err)
	}
	if content[name] == nil {
		return fmt.Errorf("the document has no content of type %s", name)
	}
	if content[name].Schema == nil {
		return nil
	}
	schema, err := b.schema(location + "/content/" + escapePointer(name) + "/schema")
	if err != nil {
		return err
	}
	switch {
	case name == "application/x-ndjson":
		for line := range bytes.Lines(body) {
			if err := validateJSON(schema, line); err != nil {
				return err
			}
		}
		return nil
	case isJSON(name):
		return validateJSON(schema, body)
	}
	return schema.Validate(string(body))
}

// validateJSON checks a text that is one JSON value.
func validateJSON(schema *jsonschema.Schema, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return schema.Validate(value)
}

// schema returns the schema at a location of the document. Tests that run in parallel share it.
func (b *bodyValidator) schema(location string) (*jsonschema.Schema, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if schema := b.schemas[location]; schema != nil {
		return schema, nil
	}
	schema, err := b.compiler.Compile(documentURL + location)
	if err != nil {
		return nil, err
	}
	b.schemas[location] = schema
	return schema, nil
}

// isJSON reports whether a content type is for one JSON value, a problem document for example.
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

// escapePointer escapes a member's name for a JSON pointer in a URL. The location is a URL for the
// compiler, so what is special in URLs is escaped as well.
func escapePointer(name string) string {
	name = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	return strings.NewReplacer("{", "%7B", "}", "%7D", "+", "%2B").Replace(name)
}
