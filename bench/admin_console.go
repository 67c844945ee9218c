package main

import (
	"bytes"
	"context"
	"errors"
	"html"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// The bounds of the pages that are asked for: of one kind, and of all.
const (
	maxPagesOfKind = 3
	maxPages       = 150
)

var (
	pageLinks = regexp.MustCompile(`<a\b[^>]*\bhref="(/console[^"#]*)`)
	// pageName is a member of a path that names something; the others belong to routes, or the
	// names of contracts and of a few queues.
	pageName   = regexp.MustCompile(`[^a-z_.-]`)
	pageCursor = regexp.MustCompile(`\bcursor=[^&]*`)
)

// pages are the pages of the console that links lead to, beginning with the first page: some of
// each sort. Where there is a list of jobs, it is asked for with each of the filters too, and pages
// of dead letters and bulk operations for a text.
func (w *adminWorld) pages(ctx context.Context, f *dataset) (all []question, err error) {
	found, kinds := map[string]bool{"/console": true}, map[string]int{}
	for open := []string{"/console"}; len(open) > 0 && len(all) < maxPages; {
		path := open[0]
		open = open[1:]
		text, err := w.get(ctx, path)
		if errors.Is(err, errGone) {
			continue // a job of the load, which was completed
		}
		if err != nil {
			return nil, err
		}
		all = append(all, question{label: pageLabel(path), path: path, goal: pageGoal,
			live: bytes.Contains(text, []byte(" data-live="))})
		for _, match := range pageLinks.FindAllStringSubmatch(string(text), -1) {
			link := html.UnescapeString(match[1])
			kind := pageKind(link)
			if found[link] || kinds[kind] == maxPagesOfKind {
				continue
			}
			found[link], open = true, append(open, link)
			kinds[kind]++
		}
	}
	if !found["/console/jobs"] {
		return all, nil
	}
	for _, filter := range f.jobFilters() {
		all = append(all, f.pageQuestion("/console/jobs?"+filter))
	}
	for _, path := range []string{"/console/dead-letters/list?error=",
		"/console/bulk/new?action=retry&text=", "/console/bulk/new?action=replay&error="} {
		all = append(all, f.pageQuestion(path+rareText))
	}
	return all, nil
}

// pageQuestion asks for a page that no link leads to.
func (f *dataset) pageQuestion(path string) question {
	return question{label: f.label(path), path: path, goal: pageGoal, maxRounds: slowRounds}
}

// pageLabel is a page as the report has it: without the names of what it shows.
func pageLabel(path string) string {
	path, query, hasQuery := strings.Cut(path, "?")
	members := strings.Split(path, "/")
	for i, m := range members {
		if pageName.MatchString(m) {
			members[i] = "{}"
		}
	}
	path = strings.Join(members, "/")
	if !hasQuery {
		return path
	}
	return path + "?" + pageCursor.ReplaceAllString(query, "cursor")
}

// pageKind is what pages of one kind have in common: the label, and which parameters there are.
func pageKind(link string) string {
	path, query, _ := strings.Cut(link, "?")
	values, _ := url.ParseQuery(query)
	return pageLabel(path) + "?" + strings.Join(slices.Sorted(maps.Keys(values)), "&")
}
