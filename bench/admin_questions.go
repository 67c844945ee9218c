package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// question is a page that is asked for again and again.
type question struct {
	label     string // of its line in the report; those with the same are one
	path      string
	goal      goal
	next      bool // the next time the page behind it is asked for, after the last one the first
	maxRounds int  // in how many rounds it is asked for; 0 is all of them
	live      bool // its script asks for it again by itself
}

// goal is what is asked of the answers to a question.
type goal int

const (
	adminGoal goal = iota // a page of the API: the 99th percentile
	textGoal              // one that looks into bodies for half a second (AD-012)
	pageGoal              // a page of the console: the 95th
)

// dataset is what questions name.
type dataset struct {
	now                             time.Time
	jobs                            map[string]int64 // numbers, by what they are
	owner, file, jobID, fingerprint string
	members                         map[string]string // of paths, by the patterns that end in them
	routes                          []string          // the patterns that the API answers to GET
	times                           []string          // of queries, each with how long ago it was
}

// The jobs that are asked for, and how one of each is found.
var worldJobs = map[string]string{
	"ready":     "contract=relay&phase=ready", // behind thousands of others
	"succeeded": "contract=forgerun&state=SUCCEEDED",
	"dead":      "contract=taskflow&phase=dead",
	"manifest":  "contract=fetchbox&kind=manifest",
}

// bodyJobs are which of the jobs have a body.
var bodyJobs = map[string]string{"payload": "ready", "definition": "succeeded",
	"progress": "ready", "result": "succeeded", "failure": "dead"}

// listed is what is looked at of the items of lists.
type listed struct {
	ID, Owner, Name, Fingerprint string
	BulkID                       string `json:"bulk_id"`
	Number                       int64
}

// list returns the items of the first page of a list that has some. There must be one: a page may
// be empty and have a next one.
func (w *adminWorld) list(ctx context.Context, path string) ([]listed, error) {
	for cursor := ""; ; {
		var page struct {
			Items []listed
			Next  string `json:"next_cursor"`
		}
		err := w.admin(ctx, "GET", path+cursor, "", &page)
		switch {
		case err != nil || len(page.Items) > 0:
			return page.Items, err
		case page.Next == "":
			return nil, fmt.Errorf("%s found nothing", path)
		}
		cursor = "&cursor=" + url.QueryEscape(page.Next)
	}
}

// readDataset reads what there is.
func (w *adminWorld) readDataset(ctx context.Context) (*dataset, error) {
	f := &dataset{now: time.Now(), jobs: map[string]int64{}, owner: w.owners[0],
		members: map[string]string{}}
	for what, query := range worldJobs {
		found, err := w.list(ctx, "/admin/v1/jobs?limit=100&"+query)
		if err != nil {
			return nil, err
		}
		j := found[0]
		if what == "succeeded" { // one with a history
			j = found[max(0, slices.IndexFunc(found, func(j listed) bool {
				return j.Number%eventsInterval == 0
			}))]
			f.jobID = j.ID
		}
		f.jobs[what] = j.Number
	}
	images, err := w.list(ctx, "/admin/v1/jobs?limit=1&contract=images")
	if err != nil {
		return nil, err
	}
	f.file = images[0].Owner
	groups, err := w.list(ctx, "/admin/v1/dead-letters/groups?limit=1")
	if err != nil {
		return nil, err
	}
	f.fingerprint = groups[0].Fingerprint
	for _, name := range []string{"bulk", "clients", "webhooks", "schedules"} {
		found, err := w.list(ctx, "/admin/v1/"+name+"?limit=1")
		if err != nil {
			return nil, err
		}
		f.members["/admin/v1/"+name] = cmp.Or(found[0].ID, found[0].BulkID,
			found[0].Name)
	}
	var deadLetters struct{ Items []struct{ ID int64 } }
	if err := w.admin(ctx, "GET", "/admin/v1/dead-letters?limit=1", "", &deadLetters); err != nil {
		return nil, err
	}
	f.members["/admin/v1/dead-letters"] = strconv.FormatInt(deadLetters.Items[0].ID, 10)
	f.routes, err = w.readRoutes(ctx)
	return f, err
}

// readRoutes reads which routes the API answers to GET, from its OpenAPI document.
func (w *adminWorld) readRoutes(ctx context.Context) (routes []string, err error) {
	text, err := w.get(ctx, "/openapi/admin.yaml")
	if err != nil {
		return nil, err
	}
	path := ""
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimRight(line, "\n"); {
		case strings.HasPrefix(line, "  /"):
			path = strings.TrimSuffix(strings.TrimSpace(line), ":")
		case line == "    get:":
			routes = append(routes, path)
		}
	}
	if len(routes) == 0 {
		return nil, errors.New("no route was found in the OpenAPI document")
	}
	return routes, nil
}

// ago is a time as a query has it.
func (f *dataset) ago(d time.Duration) string {
	text := url.QueryEscape(f.now.Add(-d).UTC().Format(time.RFC3339))
	f.times = append(f.times, text, strings.TrimSuffix(d.String(), "0m0s")+" ago")
	return text
}

// label is a path as the report has it: times are how long ago they were.
func (f *dataset) label(path string) string {
	return strings.NewReplacer(f.times...).Replace(path)
}

// endless is the route whose answer does not end, and oneRequest that of a request in the inbox,
// which is empty here.
const (
	endless    = "/admin/v1/events"
	oneRequest = "/admin/v1/inbox/{id}"
)

// questions are what the API is asked, and the patterns for which nothing is known to ask.
func (f *dataset) questions() (all []question, unknown []string) {
	queries := f.queries()
	for _, pattern := range f.routes {
		if pattern == endless || pattern == oneRequest {
			continue
		}
		paths := f.pathsOf(pattern)
		if len(paths) == 0 {
			unknown = append(unknown, pattern)
		}
		for label, path := range paths {
			all = append(all, question{label: label, path: path})
			for _, query := range queries[pattern] {
				all = append(all, question{label: f.label(label + "?" + query), path: path + "?" + query})
			}
		}
	}
	// These need a query.
	all = slices.DeleteFunc(all, func(q question) bool {
		return q.path == "/admin/v1/series" || q.path == "/admin/v1/counts"
	})
	slices.SortFunc(all, func(a, b question) int { return strings.Compare(a.label, b.label) })
	return append(all, f.jobQuestions()...), unknown
}

// pathsOf are the paths of a pattern, by their names in the report.
func (f *dataset) pathsOf(pattern string) map[string]string {
	before, member, found := strings.Cut(pattern, "/{")
	if !found {
		return map[string]string{pattern: pattern}
	}
	_, after, _ := strings.Cut(member, "}")
	if strings.Contains(after, "{") {
		return nil
	}
	if before != "/admin/v1/jobs" {
		if f.members[before] == "" {
			return nil
		}
		return map[string]string{pattern: before + "/" + f.members[before] + after}
	}
	paths := map[string]string{}
	for what, number := range f.jobs {
		needed := bodyJobs[strings.TrimPrefix(after, "/")]
		if needed == "" || needed == what {
			paths[pattern+" ("+what+")"] = before + "/" + strconv.FormatInt(number, 10) + after
		}
	}
	return paths
}

// queries are the queries with which a pattern is asked for, in addition to its path.
func (f *dataset) queries() map[string][]string {
	hour, week := f.ago(time.Hour), f.ago(7*24*time.Hour)
	q := map[string][]string{
		"/admin/v1/queues": {"order=depth", "order=age", "order=failures", "contract=relay",
			"contract=taskflow&order=depth", "text=r1", "limit=500"},
		"/admin/v1/dead-letters": {"contract=taskflow", "contract=images", "queue=main",
			"queue=rare", "queue=none", "fingerprint=" + f.fingerprint, "fingerprint=none",
			"from=" + hour, "to=" + week, "contract=taskflow&queue=rare",
			"contract=images&from=" + hour, "queue=main&to=" + week, "limit=500"},
		"/admin/v1/dead-letters/groups": {"contract=taskflow", "contract=images"},
		"/admin/v1/audit": {"action=queue.set", "action=none", "target=queue%3Arelay%2Fr1",
			"target=none", "action=queue.set&target=queue%3Arelay%2Fr1", "from=" + hour,
			"to=" + hour, "limit=500"},
		"/admin/v1/webhooks":                 {"state=disabled", "client=" + f.owner},
		"/admin/v1/webhooks/{id}/deliveries": {"limit=500"},
		"/admin/v1/clients":                  {"limit=500"},
		"/admin/v1/schedules":                {"limit=500"},
		"/admin/v1/schedules/{name}":         {"next=100"},
		"/admin/v1/workers":                  {"limit=500"},
		"/admin/v1/bulk":                     {"limit=500"},
	}
	for _, by := range []string{"contract", "queue", "phase", "state", "kind", "worker"} {
		for _, filter := range []string{"", "&contract=taskflow", "&contract=images",
			"&contract=taskflow&queue=main", "&contract=relay&queue=r7"} {
			q["/admin/v1/counts"] = append(q["/admin/v1/counts"], "by="+by+filter)
		}
	}
	for _, metric := range []string{"submitted", "depth", "wait_p95", "requests"} {
		for _, of := range []string{"", "&contract=relay", "&contract=relay&queue=r7"} {
			for _, past := range []time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
				if metric == "requests" && strings.Contains(of, "queue") {
					continue // it is not known of queues
				}
				q["/admin/v1/series"] = append(q["/admin/v1/series"],
					"metric="+metric+of+"&from="+f.ago(past))
			}
		}
	}
	return q
}

// jobFilters are filters of the list of jobs, some of which match many jobs, some few and some
// none. Two of one member do not go together.
func (f *dataset) jobFilters() []string {
	day := 24 * time.Hour
	return []string{"contract=taskflow", "contract=images", "queue=main", "queue=rare",
		"queue=none", "state=COMPLETED", "state=BLOCKED", "state=FAILED,failed_retryable",
		"phase=done", "phase=leased", "phase=waiting,ready", "phase=dead", "owner=" + f.owner,
		"owner=" + f.file, "kind=SUCCESS_FAST", "kind=manifest", "kind=none", "id=" + f.jobID,
		"parent=" + strconv.FormatInt(f.jobs["manifest"], 10), "worker=worker-0",
		"worker=worker-99", "worker=none", "created_from=" + f.ago(time.Hour),
		"created_from=" + f.ago(20*day), "created_before=" + f.ago(29*day),
		"settled_from=" + f.ago(time.Hour), "settled_before=" + f.ago(29*day), "min_age=700h",
		"max_age=1h", "min_attempts=2", "min_attempts=50", "order=oldest", "limit=500",
		"error=declined", "error=" + rareText, "text=num", "text=" + rareText}
}

// pairRounds is in how many rounds each pair is asked for, and slowRounds each text.
const (
	pairRounds = 5
	slowRounds = 20
)

// emptyRange reports whether two filters of jobFilters leave no range between them, which the route
// refuses: every lower bound here is later than the only upper one of its time.
func emptyRange(one, other string) bool {
	for _, member := range []string{"created", "settled"} {
		if strings.HasPrefix(one, member+"_from=") && strings.HasPrefix(other, member+"_before=") {
			return true
		}
	}
	return strings.HasPrefix(one, "min_age=") && strings.HasPrefix(other, "max_age=")
}

// searchesTexts reports whether one of some filters is a text that is looked for in bodies.
func searchesTexts(filters ...string) bool {
	return slices.ContainsFunc(filters, func(filter string) bool {
		return strings.HasPrefix(filter, "error=") || strings.HasPrefix(filter, "text=")
	})
}

// jobQuestions are the list of jobs with each filter alone, going on from page to page, and with
// each pair.
func (f *dataset) jobQuestions() (all []question) {
	const path = "/admin/v1/jobs"
	filters := f.jobFilters()
	goalOf := func(filters ...string) goal {
		if searchesTexts(filters...) {
			return textGoal
		}
		return adminGoal
	}
	all = append(all, question{label: path + ", from page to page", path: path, next: true})
	for i, one := range filters {
		q := question{label: f.label(path + "?" + one), path: path + "?" + one, goal: goalOf(one)}
		if q.goal == textGoal {
			q.maxRounds = slowRounds
		}
		all = append(all, q)
		q.label, q.next = q.label+", from page to page", true
		all = append(all, q)
		for _, other := range filters[i+1:] {
			if name, _, _ := strings.Cut(one, "="); strings.HasPrefix(other, name+"=") {
				continue
			}
			if emptyRange(one, other) {
				continue
			}
			pair := question{label: path + ", two filters", path: path + "?" + one + "&" + other,
				goal: goalOf(one, other), maxRounds: pairRounds}
			if pair.goal == textGoal {
				pair.label += " with a text"
			}
			all = append(all, pair)
		}
	}
	return all
}
