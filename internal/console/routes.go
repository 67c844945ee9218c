package console

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/admin"
)

// The table of the pages, which package admin takes over into its own: access, audit and HEAD
// follow from it as for routes of the API. Each file beside the table has the pages of one noun.

// Path is the path of the console, with which those of all pages begin.
const Path = "/console"

// Pages implements admin.Console: the table of the pages.
func (o *Console) Pages() []admin.Page {
	all := slices.Concat(o.accessPages(), o.overviewPages(), o.jobListPages(), o.jobPages(),
		o.artifactPages(), o.queuePages(), o.schedulePages(), o.deadLetterPages(), o.inboxPages(),
		o.bulkPages(),
		o.workerPages(), o.webhookPages(), o.clientPages(), o.nodePages(), files)
	for i := range all {
		all[i].DecodePathValue = decodeMember
	}
	return all
}

// files are what pages load. They are public, as the login page loads them too.
var files = []admin.Page{
	{Method: "GET", Pattern: Path + "/style.css", Action: "console.style", Public: true,
		Handle: file("text/css; charset=utf-8", styleText)},
	{Method: "GET", Pattern: Path + "/script.js", Action: "console.script", Public: true,
		Handle: file("text/javascript; charset=utf-8", scriptText)},
	{Method: "GET", Pattern: Path + "/icon.svg", Action: "console.icon", Public: true,
		Handle: file("image/svg+xml", iconText)},
}

// navGroup is a part of the navigation.
type navGroup struct {
	Name  string
	Links []navLink
}

// navLink is a page that the navigation names.
type navLink struct {
	Text, Path string
	Current    bool // this page, or one below it
}

// navigation has the pages in the order in which they are shown.
var navigation = []navGroup{
	{Links: []navLink{
		{Text: "Overview", Path: Path},
		{Text: "Jobs", Path: Path + "/jobs"},
		{Text: "Queues", Path: Path + "/queues"},
		{Text: "Schedules", Path: Path + "/schedules"},
		{Text: "Dead letters", Path: Path + "/dead-letters"},
		{Text: "Bulk operations", Path: Path + "/bulk"},
		{Text: "Inbox", Path: Path + "/inbox"},
		{Text: "Manifests", Path: Path + "/manifests"},
		{Text: "Files", Path: Path + "/files"},
	}},
	{Name: "Run", Links: []navLink{
		{Text: "Workers", Path: Path + "/workers"},
		{Text: "Webhooks", Path: Path + "/webhooks"},
		{Text: "Clients", Path: Path + "/clients"},
	}},
	{Name: "System", Links: []navLink{
		{Text: "Audit", Path: Path + "/audit"},
		{Text: "Health", Path: Path + "/health"},
		{Text: "Settings", Path: Path + "/settings"},
		{Text: "Documentation", Path: "/docs"},
	}},
}

// isUnserved reports whether a page is about what this node does not have.
func (o *Console) isUnserved(path string) bool {
	switch path {
	case Path + "/inbox":
		return !o.api.Engine.HasInbox()
	case Path + "/manifests":
		return o.api.Manifests() == nil
	case Path + "/files":
		return o.api.Files() == nil
	case Path + "/clients":
		return !o.api.HasClients()
	}
	return false
}

// navOf returns the navigation as a page shows it, without what this node does not serve.
func (o *Console) navOf(path string) (all []navGroup) {
	for _, group := range navigation {
		links := slices.DeleteFunc(slices.Clone(group.Links), func(link navLink) bool {
			return o.isUnserved(link.Path)
		})
		for i := range links {
			below := links[i].Path != Path && strings.HasPrefix(path, links[i].Path+"/")
			links[i].Current = below || path == links[i].Path || path == links[i].Path+"/"
		}
		all = append(all, navGroup{group.Name, links})
	}
	return all
}
