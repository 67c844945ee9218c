package docsite

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
)

// The page of an API has each of its operations, parameters, schemas and members.
func TestAPIPages(t *testing.T) {
	t.Parallel()
	for _, api := range apis {
		t.Run(api.Name, func(t *testing.T) {
			t.Parallel()
			doc := testkit.ReadDocument(t, api.Document, 1<<20).Doc
			page := get(t, Path+"/api/"+api.Name).Body.String()
			want := func(text string) {
				t.Helper()
				if !strings.Contains(page, text) {
					t.Errorf("the page lacks %s", text)
				}
			}
			count := 0
			for path, item := range doc.Paths.Map() {
				for method, op := range item.Operations() {
					count++
					want(`<h3 id="` + op.OperationID + `">`)
					want(`<span class="method ` + method + `">` + method + "</span> <code>" + path +
						"</code>")
					for _, p := range append(item.Parameters, op.Parameters...) {
						want("<code>" + p.Value.Name + `</code> <span class="quiet">` + p.Value.In +
							"</span>")
					}
				}
			}
			for name, schema := range doc.Components.Schemas {
				want(`<h3 id="schema-` + strings.ToLower(name) + `">` + name)
				for member := range schema.Value.Properties {
					want("<code>" + member + "</code>")
				}
			}
			if n := strings.Count(page, `<p class="route">`); n != count || count == 0 {
				t.Errorf("the page has %d operations, the document %d", n, count)
			}
			if strings.Contains(page, "$ref") || strings.Contains(page, "%!") {
				t.Error("something is shown as it is written in the document")
			}
		})
	}
}

// Examples are what the schemas allow.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, api := range apis {
		t.Run(api.Name, func(t *testing.T) {
			t.Parallel()
			doc := testkit.ReadDocument(t, api.Document, 1<<20)
			root := rootOf(api.Document)
			checked := 0
			check := func(location string, schema node) {
				checked++
				if err := doc.CheckValue("#"+location, []byte(schema.example())); err != nil {
					t.Errorf("%s: %s: %v", location, schema.example(), err)
				}
			}
			for _, one := range root.get("components").get("schemas").pairs() {
				check("/components/schemas/"+one.key, one.value)
			}
			for _, path := range root.get("paths").pairs() {
				for _, method := range path.value.pairs() {
					at := "/paths/" + pointer(path.key) + "/" + method.key
					eachSchema(at+"/requestBody", method.value.get("requestBody"), check)
					for _, one := range method.value.get("responses").pairs() {
						eachSchema(at+"/responses/"+one.key, one.value, check)
					}
				}
			}
			if checked < 10 {
				t.Errorf("%d examples were checked", checked)
			}
		})
	}
}

// eachSchema calls check with the schemas in JSON of a body.
func eachSchema(location string, body node, check func(string, node)) {
	if ref := body.get("$ref").text(); ref != "" {
		location = strings.TrimPrefix(ref, "#")
	}
	for _, media := range body.resolved().get("content").pairs() {
		if strings.HasSuffix(media.key, "json") {
			check(location+"/content/"+pointer(media.key)+"/schema", media.value.get("schema"))
		}
	}
}

// pointer escapes a name for a JSON pointer in a URL.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B").Replace(name)
}

// A schema is said in words, with a link where it has a name.
func TestShapes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{$ref: "#/components/schemas/Job"}`: `<a href="#schema-job">Job</a>`,
		`{type: array, items: {type: integer, minimum: 1}, maxItems: 3}`: `array of integer ` +
			`<span class="quiet">from <code>1</code></span> <span class="quiet">items to ` +
			`<code>3</code></span>`,
		`{type: [string, "null"], format: uuid}`:       "uuid or null",
		`{oneOf: [{type: integer}, {type: "null"}]}`:   "integer or null",
		`{type: string, enum: ["a<b", c]}`:             "<code>a&lt;b</code>, <code>c</code>",
		`{description: Any JSON value.}`:               "any value",
		`{allOf: [{$ref: "#/x/A"}, {type: object}]}`:   `<a href="#schema-a">A</a> with object`,
		`{type: string, pattern: "^<", minLength: 2}`:  `string <span class="quiet">characters from <code>2</code>, pattern <code>^&lt;</code></span>`,
		`{type: integer, minimum: 0, default: 5}`:      `integer <span class="quiet">from <code>0</code>, default <code>5</code></span>`,
		`{type: [array, "null"], items: {type: null}}`: "array of null or null",
	} {
		if got := string(rootOf([]byte(text)).shape()); got != want {
			t.Errorf("%s is\n%s, want\n%s", text, got, want)
		}
	}
}

// An operation has a request with its body; TestExamples checks the bodies against their schemas.
func TestExampleRequest(t *testing.T) {
	t.Parallel()
	page := tags.ReplaceAllString(get(t, "/docs/api/relay").Body.String(), "")
	if !strings.Contains(page, "POST /v2/queues/jobs\nContent-Type: application/json\n\n[{") {
		t.Error("the page has no request that enqueues a job")
	}
}
