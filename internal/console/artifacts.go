package console

import (
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// Manifests, resources and files are shown for the contract of this node that has them, whichever
// it is: contract.Manifests and contract.Files say how they are read. Manifests and resources are
// jobs and have job pages too; a file outlives the jobs that have made it. A node without such a
// contract says so on the pages and leaves them out of the navigation.

// artifactPages are the pages of what contracts keep beside jobs: manifests with their resources,
// and files.
func (o *Console) artifactPages() []admin.Page {
	const manifests, files = Path + "/manifests", Path + "/files"
	return []admin.Page{
		{Method: "GET", Pattern: manifests, Action: "console.manifests",
			Query: httpapi.PageQuery(admin.ManifestFilters...), Handle: o.show(o.showManifests)},
		{Method: "GET", Pattern: manifests + "/{number}", Action: "console.manifest",
			Query: httpapi.PageQuery(admin.ResourceFilters...), Handle: o.show(o.showManifest)},
		{Method: "GET", Pattern: files, Action: "console.files", Query: httpapi.PageQuery(),
			Handle: o.show(o.showFiles)},
		{Method: "GET", Pattern: files + "/{id}", Action: "console.file",
			Handle: o.show(o.showFile)},
		{Method: "GET", Pattern: files + "/{id}/variants/{size}", Action: "console.variant",
			Handle: o.api.SendVariant},
	}
}

// manifestPath returns the path of the page of a manifest.
func manifestPath(number int64) string {
	return pathOf("manifests", strconv.FormatInt(number, 10))
}

// manifestsPage is what the list of manifests shows.
type manifestsPage struct {
	Served     bool // a contract of this node has manifests
	Query      url.Values
	States     []string
	Filtered   bool
	Manifests  []admin.Manifest
	SearchedTo time.Time
	NextPage   string
}

// showManifests is GET /console/manifests.
func (o *Console) showManifests(c *httpapi.Call) (view, error) {
	found, next, searchedTo, err := o.api.ListManifests(c)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	for i := range found {
		viewer.RedactManifests(&found[i])
	}
	p := manifestsPage{Query: c.Request.URL.Query(), Manifests: found, SearchedTo: searchedTo,
		Filtered: c.Request.URL.RawQuery != "", NextPage: nextPage(c.Request, next)}
	v := view{Name: "manifests", Title: "Manifests"}
	if m := o.api.Manifests(); m != nil {
		p.Served, p.States, v.Live.Queue = true, o.api.StatesOf(m.Jobs), m.Jobs
	}
	v.Page = p
	return v, nil
}

// manifestPage is what the page of a manifest shows.
type manifestPage struct {
	admin.Manifest
	Filter     string // a state
	States     []string
	Resources  []admin.Resource
	SearchedTo time.Time
	NextPage   string
}

// showManifest is GET /console/manifests/{number}.
func (o *Console) showManifest(c *httpapi.Call) (view, error) {
	m, err := o.api.PathManifest(c)
	if err != nil {
		return view{}, err
	}
	found, next, searchedTo, err := o.api.ListResources(c, &m)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	viewer.RedactManifests(&m)
	viewer.RedactResources(found)
	resources := o.api.Manifests().Resources
	return view{Name: "manifest", Title: "Manifest " + strconv.FormatInt(m.Number, 10),
		Live: liveScope{Queue: resources + "/", Number: m.Number},
		Page: &manifestPage{m, c.Request.URL.Query().Get("state"), o.api.StatesOf(resources),
			found, searchedTo, nextPage(c.Request, next)}}, nil
}

// showFiles is GET /console/files.
func (o *Console) showFiles(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListFiles(c)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	for i := range found {
		viewer.RedactFiles(&found[i])
	}
	return view{Name: "files", Title: "Files", Page: struct {
		Served   bool // a contract of this node keeps files
		Files    []contract.File
		NextPage string
	}{o.api.Files() != nil, found, nextPage(c.Request, next)}}, nil
}

// showFile is GET /console/files/{id}.
func (o *Console) showFile(c *httpapi.Call) (view, error) {
	f, err := o.api.PathFile(c)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	p := filePage{File: f}
	if f.Status == fileFailed && f.Job != 0 {
		if p.Error, err = o.errorOf(c, viewer, f.Job); err != nil {
			return view{}, err
		}
	}
	viewer.RedactFiles(&p.File)
	return view{Name: "file", Title: "File " + f.ID, Page: p, Live: liveScope{Number: f.Job}}, nil
}

// filePage is what the page of a file shows.
type filePage struct {
	contract.File
	Error string // of its latest job, where this has failed
}

// fileFailed is the state of a file of which nothing could be made.
const fileFailed = "failed"

// errorOf returns the error of a job, as far as the caller sees it; "" for one that is gone.
func (o *Console) errorOf(c *httpapi.Call, viewer admin.Viewer, number int64) (string, error) {
	d, err := o.api.JobDetail(c.Context(), number)
	if job.IsKind(err, job.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	viewer.RedactJob(d)
	return d.Error, nil
}

// smallest returns the size of the smallest variant of a file, 0 where there is none.
func smallest(f contract.File) (size int) {
	for _, v := range f.Variants {
		if size == 0 || v.Size < size {
			size = v.Size
		}
	}
	return size
}
