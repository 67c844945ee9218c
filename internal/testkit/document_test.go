package testkit

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

const sampleDocument = `
openapi: 3.1.0
info: {title: Sample, version: "1"}
paths:
  /things:
    post:
      requestBody:
        content:
          application/json: {schema: {$ref: "#/components/schemas/Thing"}}
      responses:
        "200":
          description: A thing.
          content:
            application/json: {schema: {$ref: "#/components/schemas/Thing"}}
components:
  schemas:
    Kind: {type: string, enum: [a, b]}
    Thing:
      type: object
      required: [any, no, yes]
      properties:
        any: {description: Any JSON value.}
        no: {nullable: true, allOf: [{$ref: "#/components/schemas/Kind"}]}
        yes: {oneOf: [{$ref: "#/components/schemas/Kind"}, {type: "null"}]}
        at: {type: string, format: date-time}
      additionalProperties: false
`

// TestDocument shows that bodies are held against the document as JSON Schema has it: null is what
// a type of "null" or no type at all allows, and a format is a rule.
func TestDocument(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData([]byte(sampleDocument))
	if err != nil {
		t.Fatal(err)
	}
	d := &Document{Doc: doc, bodyValidator: newBodyValidator(t, doc)}
	item := d.Doc.Paths.Find("/things")
	for _, c := range []struct {
		body    string
		problem string // a part of it
	}{
		{`{"any": null, "no": "a", "yes": null}`, ""},
		{`{"any": 9007199254740993, "no": "b", "yes": "b", "at": "2026-01-02T03:04:05Z"}`, ""},
		{`{"any": 1, "no": null, "yes": null}`, "'/no'"},
		{`{"any": 1, "no": "a", "yes": "c"}`, "'/yes'"},
		{`{"any": 1, "no": "a", "yes": null, "at": "yesterday"}`, "'/at'"},
		{`{"any": 1, "no": "a", "yes": null, "more": 1}`, "'more'"},
		{`{"any": 1`, "is not JSON"},
	} {
		request := httptest.NewRequest(http.MethodPost, "/things", strings.NewReader(c.body))
		request.Header.Set("Content-Type", "application/json; charset=utf-8")
		input := &openapi3filter.RequestValidationInput{Request: request,
			Route: &routers.Route{Spec: d.Doc, Path: "/things",
				PathItem: item, Method: http.MethodPost, Operation: item.Post}}
		answer := &http.Response{StatusCode: http.StatusOK,
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(bytes.NewReader(nil))}
		for side, err := range map[string]error{
			"request":  d.checkRequest(input, []byte(c.body)),
			"response": d.checkResponse(input, answer, []byte(c.body)),
		} {
			if c.problem == "" && err != nil {
				t.Errorf("the %s %s: %v", side, c.body, err)
			}
			if c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("the %s %s: %v, want a problem with %s", side, c.body, err, c.problem)
			}
		}
	}
}

// TestDocumentFaults names what a document lacks.
func TestDocumentFaults(t *testing.T) {
	const poor = `
openapi: 3.0.3
info: {title: Poor, version: "1"}
paths:
  /things/{size}:
    get:
      operationId: delete
      parameters: [{$ref: "#/components/parameters/size"}]
      responses: {"200": {description: A thing.}}
components:
  parameters:
    size: {name: size, in: path, required: true, schema: {type: string}}
  schemas:
    Size: {type: object, description: A size., properties: {width: {type: integer, nullable: true}}}
    Error: {type: string, description: An error.}
`
	doc, err := openapi3.NewLoader().LoadFromData([]byte(poor))
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Join(documentProblems(doc), "\n")
	for _, want := range []string{"the version 3.0.3", "the license", "the servers",
		"description of info", "description of GET /things/{size}",
		"the id of GET", "description of the parameter size",
		"description of the schema Size.width", "nullable in the schema Size.width",
		"the name Size of schemas collides with one of parameters",
		"the name Error of schemas is reserved"} {
		if !strings.Contains(found, want) {
			t.Errorf("%q is not found in:\n%s", want, found)
		}
	}
	if n := strings.Count(found, "\n"); n != 11 {
		t.Errorf("%d faults are found, want 12:\n%s", n+1, found)
	}
}
