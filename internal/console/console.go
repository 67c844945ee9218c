package console

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed style.css
var styleText []byte

//go:embed script.js
var scriptText []byte

//go:embed icon.svg
var iconText []byte

// Style returns the style sheet, for pages that look like those of the console.
func Style() []byte { return styleText }

// Icon returns the icon, as SVG.
func Icon() []byte { return iconText }

// A page is a function that makes a view, and a form one that does something and says where to go:
//
//	GET    show:     ListJobs … ─▶ view ─▶ send: what all pages show, template ─▶ 200
//	POST   submit:   readForm ─▶ the change ─▶ 303 to a page, so that a reload repeats nothing
//	       submitOn: the same, and where it is refused its page once more, with what is wrong
//	       showForm: readForm ─▶ view, for an answer that is shown once, such as a new secret
//
// Errors that are not answered so go to SendError, by the router of package admin.

// Console serves the pages. It implements admin.Console.
type Console struct {
	api       *admin.API
	templates map[string]*template.Template // by the name of the page
	searches  searchLimiter
}

// New makes the console of an API.
func New(api *admin.API) *Console { return &Console{api: api, templates: parsePages()} }

// parsePages reads the templates: each page fills the layout.
func parsePages() map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(pageFiles,
		"pages/layout.html"))
	all := map[string]*template.Template{}
	entries, err := pageFiles.ReadDir("pages")
	if err != nil {
		panic(err) // the files are part of this program
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".html")
		clone := template.Must(layout.Clone())
		all[name] = template.Must(clone.ParseFS(pageFiles, "pages/"+e.Name()))
	}
	return all
}

// view is what a page shows.
type view struct {
	Name  string // of its template
	Title string
	Page  any // for the template
	// Problem says why the form that the page answers was refused; "" if it was not.
	Problem string
	// Status is the status of the answer; 0 means 200.
	Status int
	// Live is what concerns the live parts of the page.
	Live liveScope

	// The members below are set by send.
	Viewer          admin.Viewer
	Now             time.Time
	Nav             []navGroup
	Node            string // the name of the node that answers
	FirstPage       string // the address of the first page of the list; "" on that
	RefreshInterval int    // seconds from one reading of the page by the script to the next
}

// liveScope is what of the live events (AD-061) concerns a page with live parts: its zero value is
// the counts of all queues.
type liveScope struct {
	Queue  string // those of the queues whose contract/queue begins with it
	Number int64  // and a job
	Bulk   string // or a bulk operation alone, by its id, or anyBulk
}

// anyBulk stands for the id of any bulk operation.
const anyBulk = "any"

// Pages are read again maxReadsPerSecond times in a second, by all together who watch on this node,
// and take no more than maxReadTimePerSecond of it: the more consoles are open, and the longer a
// page takes, the more seldom each is read.
const (
	maxReadsPerSecond    = 5
	maxReadTimePerSecond = 80 * time.Millisecond
)

// refreshSeconds returns after how many seconds a page that took so long is read again, where so
// many watch.
func refreshSeconds(watches int, took time.Duration) int {
	return max(1, watches/maxReadsPerSecond, int(time.Duration(watches)*took/maxReadTimePerSecond))
}

// show makes the handler of a page, whose view read returns.
func (o *Console) show(read func(c *httpapi.Call) (view, error)) httpapi.Handler {
	return func(c *httpapi.Call) error {
		c.Request.URL.RawQuery = withoutEmpty(c.Request.URL.RawQuery)
		v, err := read(c)
		if err != nil {
			return err
		}
		return o.send(c, v)
	}
}

// withoutEmpty removes the parameters without a value from a query.
func withoutEmpty(query string) string {
	parameters := slices.DeleteFunc(strings.Split(query, "&"), func(parameter string) bool {
		_, value, given := strings.Cut(parameter, "=")
		return parameter == "" || (given && value == "")
	})
	return strings.Join(parameters, "&")
}

// htmlType is the content type of the pages.
var htmlType = []string{"text/html; charset=utf-8"}

// send answers with a page.
func (o *Console) send(c *httpapi.Call, v view) error {
	v.Viewer, v.Now = o.api.Viewer(c), o.api.Now()
	v.Nav, v.Node = o.navOf(c.Request.URL.Path), o.api.Engine.Node()
	v.FirstPage = firstPage(c.Request)
	v.RefreshInterval = refreshSeconds(o.api.Live.Watches(), c.Elapsed())
	var text bytes.Buffer
	if err := o.templates[v.Name].Execute(&text, v); err != nil {
		return err
	}
	if v.Status == 0 {
		v.Status = http.StatusOK
	}
	c.Send(v.Status, htmlType, text.Bytes())
	return nil
}

// SendError implements admin.Console. These templates show texts alone, so they do not fail.
func (o *Console) SendError(c *httpapi.Call, answer httpapi.Answer) {
	v := view{Name: "error", Title: answer.Title, Page: answer.Detail, Status: answer.Status}
	if answer.Status == http.StatusUnauthorized {
		v.Name, v.Title, v.Page = "login", "Log in", loginPage{}
		c.Identity = nil
	}
	_ = o.send(c, v)
}

// submit makes the handler of a form with fields of these names, each of which is given at most
// once. do carries it out and returns the page to go to.
func (o *Console) submit(do func(c *httpapi.Call, form url.Values) (to string, err error),
	fields ...string) httpapi.Handler {
	return func(c *httpapi.Call) error {
		form, err := readForm(c, fields)
		if err != nil {
			return err
		}
		to, err := do(c, form)
		if err != nil {
			return err
		}
		c.Header().Set("Location", to)
		c.WriteHeader(http.StatusSeeOther)
		return nil
	}
}

// submitOn is submit for a form that stands on a page of the same path. Where it is refused, that
// page is shown again with the problems.
func (o *Console) submitOn(page func(*httpapi.Call) (view, error),
	do func(c *httpapi.Call, form url.Values) (string, error), fields ...string) httpapi.Handler {
	submit := o.submit(do, fields...)
	return func(c *httpapi.Call) error {
		refused := submit(c)
		answer := admin.Answer(refused)
		if answer.Status != http.StatusBadRequest && answer.Status != http.StatusConflict {
			return refused
		}
		v, err := page(c)
		if err != nil {
			return err
		}
		v.Problem, v.Status = answer.Detail, answer.Status
		return o.send(c, v)
	}
}

// showForm makes the handler of a form that answers with a page.
func (o *Console) showForm(do func(c *httpapi.Call, form url.Values) (view, error),
	fields ...string) httpapi.Handler {
	return func(c *httpapi.Call) error {
		form, err := readForm(c, fields)
		if err != nil {
			return err
		}
		v, err := do(c, form)
		if err != nil {
			return err
		}
		return o.send(c, v)
	}
}

// readForm reads the body of a form.
func readForm(c *httpapi.Call, fields []string) (url.Values, error) {
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(strictjson.Trim(body)))
	if err != nil {
		return nil, invalid("the body is not a form")
	}
	for name, values := range form {
		if !slices.Contains(fields, name) || len(values) > 1 {
			return nil, invalid("the form has other fields than this page")
		}
	}
	return form, nil
}

// invalid refuses a form that breaks a rule.
func invalid(msg string) error {
	return &job.Error{Kind: job.Invalid, Op: "console.form", Msg: msg}
}

// file makes the handler of a file of the console.
func file(contentType string, text []byte) httpapi.Handler {
	header := []string{contentType}
	return func(c *httpapi.Call) error {
		c.Send(http.StatusOK, header, text)
		return nil
	}
}
