package console

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/admin"
)

// Path is the path of the console, with which those of all pages begin.
const Path = "/console"

// Pages implements admin.Console: the table of the pages.
func (o *Console) Pages() []admin.Page {
	return slices.Concat(o.accessPages(), o.overviewPages(), o.jobPages(), o.queuePages(),
		o.schedulePages(), o.letterPages(), o.bulkPages(), o.workerPages(), o.webhookPages(),
		o.clientPages(), o.nodePages(), files)
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
		{Text: "Queues", Path: Path + "/queues"},
		{Text: "Schedules", Path: Path + "/schedules"},
		{Text: "Dead letters", Path: Path + "/dead-letters"},
		{Text: "Bulk operations", Path: Path + "/bulk"},
	}},
	{Name: "Who works", Links: []navLink{
		{Text: "Workers and nodes", Path: Path + "/workers"},
		{Text: "Webhooks", Path: Path + "/webhooks"},
		{Text: "Clients", Path: Path + "/clients"},
	}},
	{Name: "Node", Links: []navLink{
		{Text: "Audit", Path: Path + "/audit"},
		{Text: "Health", Path: Path + "/health"},
		{Text: "Settings", Path: Path + "/settings"},
	}},
}

// navOf returns the navigation as a page shows it.
func navOf(path string) (all []navGroup) {
	for _, group := range navigation {
		links := slices.Clone(group.Links)
		for i := range links {
			below := links[i].Path != Path && strings.HasPrefix(path, links[i].Path+"/")
			links[i].Current = below || path == links[i].Path || path == links[i].Path+"/"
		}
		all = append(all, navGroup{group.Name, links})
	}
	return all
}
