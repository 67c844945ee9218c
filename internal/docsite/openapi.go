package docsite

import (
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// The page of an API is made of its OpenAPI document, which is read as a tree of nodes and not into
// types of its own: what the page shows of a node is asked of it by name, and what it does not show
// need not be known. schema.go says in words what a schema allows, example.go makes a value of it.
//
//	openapi.yaml ─▶ node ─▶ operation, content, response, member ─▶ apiView ─▶ template

// apiDocument is an OpenAPI document and its page. Of OpenAPI it knows what the documents of the
// contracts use (decision 0034); a test shows every one of them.
type apiDocument struct {
	url, source, name string
	read              func() *apiView
}

// newAPIDocument makes the document of an API, which is read when it is asked for first.
func newAPIDocument(s *Site, api API) *apiDocument {
	a := &apiDocument{url: Path + "/api/" + api.Name, source: api.Source, name: api.Name}
	a.read = sync.OnceValue(func() *apiView { return readAPI(api.Document) })
	return a
}

// apiPage makes the page of an API.
func (s *Site) apiPage(a *apiDocument) *answer {
	v := a.read()
	content := []heading{}
	for _, group := range v.Groups {
		content = append(content, heading{2, group.ID, group.Name})
		for _, o := range group.Operations {
			content = append(content, heading{3, o.ID, o.Summary})
		}
	}
	content = append(content, heading{2, "schemas", "Schemas"})
	page := &view{Title: v.Title, Path: a.url, Page: v, Content: content,
		Raw: "/openapi/" + a.name + ".yaml"}
	page.Before, page.After = s.neighbours(a.url)
	return s.page("api", http.StatusOK, page)
}

// sections returns what a search finds: the operations and the schemas.
func (a *apiDocument) sections() (all []section) {
	v := a.read()
	for _, group := range v.Groups {
		for i := range group.Operations {
			o := &group.Operations[i]
			words := []string{o.Method, o.Path, o.plain}
			for _, p := range o.Parameters {
				words = append(words, p.Name)
			}
			all = append(all, section{url: a.url + "#" + o.ID, page: v.Title, heading: o.Summary,
				text: strings.Join(words, " "), weight: 60})
		}
	}
	for _, one := range v.Schemas {
		words := []string{one.plain}
		for _, m := range one.Members {
			words = append(words, m.Name)
		}
		all = append(all, section{url: a.url + "#" + one.ID, page: v.Title, heading: one.Name,
			text: strings.Join(words, " "), weight: 30})
	}
	return all
}

// apiView is what the page of an API shows.
type apiView struct {
	Title, Version string
	Description    template.HTML
	Groups         []apiGroup
	Schemas        []schemaView
}

// apiGroup are the operations of a tag.
type apiGroup struct {
	ID, Name    string
	Description template.HTML
	Operations  []operation
}

// operation is a method of a path.
type operation struct {
	ID, Method, Path, Summary string
	Description               template.HTML
	Open                      bool // needs no credentials in any case
	Parameters                []member
	Body                      *content
	Required                  bool // of Body
	Example                   template.HTML
	Responses                 []response
	plain                     string // the description without marks
}

// content is a body.
type content struct {
	Type        string // media type
	Description template.HTML
	Shape       template.HTML // the name of its schema, or what it is
	Members     []member
	Example     template.HTML
}

// response describes the answer with a status.
type response struct {
	Status      string
	Description template.HTML
	Headers     []member
	Contents    []content
}

// member is a parameter, a header or a property.
type member struct {
	Name, In    string
	Required    bool
	Type        template.HTML
	Description template.HTML
}

// schemaView is a schema with a name.
type schemaView struct {
	ID, Name    string
	Type        template.HTML
	Description template.HTML
	Members     []member
	plain       string
}

// node is a part of a document, with the document for its references.
type node struct {
	*yaml.Node
	root *yaml.Node
}

// rootOf reads a document. It is part of the program, so one that cannot be read is a defect.
func rootOf(text []byte) node {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		panic(err)
	}
	return node{file.Content[0], file.Content[0]}
}

// readAPI makes the view of a document.
func readAPI(text []byte) *apiView {
	doc := rootOf(text)
	info := doc.get("info")
	v := &apiView{Title: info.get("title").text(), Version: info.get("version").text(),
		Description: prose(info.get("description").text())}
	for _, tag := range doc.get("tags").items() {
		name := tag.get("name").text()
		v.Groups = append(v.Groups, apiGroup{ID: "tag-" + anchorOf(name), Name: name,
			Description: prose(tag.get("description").text())})
	}
	for _, path := range doc.get("paths").pairs() {
		for _, method := range path.value.pairs() {
			if method.key == "parameters" {
				continue
			}
			v.add(readOperation(doc, path.key, path.value, method.key, method.value),
				method.value.get("tags").items())
		}
	}
	v.Groups = slices.DeleteFunc(v.Groups, func(g apiGroup) bool { return len(g.Operations) == 0 })
	for _, one := range doc.get("components").get("schemas").pairs() {
		v.Schemas = append(v.Schemas, schemaView{ID: schemaID(one.key), Name: one.key,
			Type:        one.value.shape(),
			Description: prose(one.value.get("description").text()),
			Members:     one.value.members(""), plain: one.value.get("description").text()})
	}
	return v
}

// add puts an operation into the group of its first tag.
func (v *apiView) add(o operation, tags []node) {
	name := "Operations"
	if len(tags) > 0 {
		name = tags[0].text()
	}
	for i := range v.Groups {
		if v.Groups[i].Name == name {
			v.Groups[i].Operations = append(v.Groups[i].Operations, o)
			return
		}
	}
	v.Groups = append(v.Groups, apiGroup{ID: "tag-" + anchorOf(name), Name: name,
		Operations: []operation{o}})
}

// readOperation reads an operation.
func readOperation(doc node, path string, item node, method string, op node) operation {
	o := operation{ID: op.get("operationId").text(), Method: strings.ToUpper(method), Path: path,
		Summary:     strings.TrimSuffix(op.get("summary").text(), "."),
		Description: prose(op.get("description").text()), plain: op.get("description").text()}
	for _, p := range slices.Concat(item.get("parameters").items(), op.get("parameters").items()) {
		o.Parameters = append(o.Parameters, readParameter(p.resolved()))
	}
	if security, found := op.find("security"); found {
		o.Open = len(security.items()) == 0
	}
	if body, found := op.find("requestBody"); found {
		body = body.resolved()
		o.Required = body.get("required").text() == "true"
		for _, media := range body.get("content").pairs() {
			c := readContent(media.key, media.value)
			c.Description = prose(body.get("description").text())
			o.Body = &c
			break
		}
	}
	o.Example = exampleRequest(&o, op)
	for _, one := range op.get("responses").pairs() {
		answer := one.value.resolved()
		r := response{Status: one.key, Description: prose(answer.get("description").text())}
		for _, h := range answer.get("headers").pairs() {
			header := readParameter(h.value.resolved())
			header.Name = h.key
			r.Headers = append(r.Headers, header)
		}
		for _, media := range answer.get("content").pairs() {
			r.Contents = append(r.Contents, readContent(media.key, media.value))
		}
		o.Responses = append(o.Responses, r)
	}
	return o
}

// readParameter reads a parameter or a header.
func readParameter(p node) member {
	return member{Name: p.get("name").text(), In: p.get("in").text(),
		Required: p.get("required").text() == "true", Type: p.get("schema").shape(),
		Description: prose(p.get("description").text())}
}

// readContent reads the body of a media type.
func readContent(mediaType string, media node) content {
	schema := media.get("schema")
	c := content{Type: mediaType, Shape: schema.shape(), Members: schema.members("")}
	if strings.HasSuffix(mediaType, "json") {
		c.Example = codeBlock("json", schema.example())
	}
	return c
}

// exampleRequest is a request of an operation without the headers that the operation lists.
func exampleRequest(o *operation, op node) template.HTML {
	text := o.Method + " " + o.Path + "\n"
	if o.Body == nil {
		return codeBlock("http", text)
	}
	text += "Content-Type: " + o.Body.Type + "\n\n"
	if !strings.HasSuffix(o.Body.Type, "json") {
		return codeBlock("http", text+"the bytes of the file\n")
	}
	body := op.get("requestBody").resolved().get("content").get(o.Body.Type).get("schema")
	return codeBlock("http", text+body.example()+"\n")
}

// schemaID is the id of a schema on its page.
func schemaID(name string) string { return "schema-" + strings.ToLower(name) }
