package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
)

// auditFilters are the filters of the audit, which are parameters of its address.
var auditFilters = []string{"actor", "action", "target", "from", "to"}

// auditPage is what the page of the audit shows.
type auditPage struct {
	Query       url.Values        // of the filters
	FieldErrors map[string]string // the problem of a filter, by its name
	Filtered    bool
	Entries     []auditEntry
	SearchedTo  time.Time
	Next        string // the address of the next page
}

// auditEntry is an entry as the page shows it.
type auditEntry struct {
	admin.Entry
	Object  string // the page of what the target names; "" where there is none
	Sum     string // how many jobs a bulk operation was about; "" for an entry about none
	Changes []change
	More    int // how many further changes the details have
	// ByActor, ByAction and ByTarget are the addresses of the page with one filter more.
	ByActor, ByAction, ByTarget string
}

// IsWhole reports whether the changes are all that was made or removed, and not what differs.
func (e *auditEntry) IsWhole() bool { return len(e.Before) == 0 || len(e.After) == 0 }

// change is a member of what was changed. What was made has no From, and what was removed no To.
type change struct{ Name, From, To string }

// showAudit is GET /console/audit. A wrong filter is marked in its field.
func (o *Console) showAudit(c *httpapi.Call) (view, error) {
	q := c.Request.URL.Query()
	p := auditPage{Query: q, Filtered: slices.ContainsFunc(auditFilters, q.Has)}
	v := view{Name: "audit", Title: "Audit"}
	found, err := o.api.Audit(c)
	if answer := admin.Answer(err); err != nil && answer.Status == http.StatusBadRequest {
		if p.FieldErrors = fieldErrors(answer.Detail, auditFilters); len(p.FieldErrors) > 0 {
			v.Page, v.Status = p, answer.Status
			return v, nil
		}
	}
	if err != nil {
		return v, err
	}
	p.SearchedTo, p.Next = found.SearchedTo, nextPage(c.Request, found.Next)
	for i := range found.Entries {
		p.Entries = append(p.Entries, auditEntryOf(&found.Entries[i], q))
	}
	v.Page = p
	return v, nil
}

// fieldErrors returns the text of a refusal by the name of the field that it begins with.
func fieldErrors(detail string, names []string) map[string]string {
	for _, name := range names {
		rest, isOf := strings.CutPrefix(detail, name)
		if isOf && (strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, ":")) {
			return map[string]string{name: detail}
		}
	}
	return nil
}

// maxChanges is how many changes of an entry are shown before its details are unfolded.
const maxChanges = 6

// auditEntryOf returns what a page with filters shows of an entry.
func auditEntryOf(e *admin.Entry, filters url.Values) auditEntry {
	with := func(name, value string) string {
		query := maps.Clone(filters)
		query.Del("cursor")
		query.Set(name, value)
		return Path + "/audit?" + query.Encode()
	}
	_, name, isNamed := strings.Cut(e.Actor, ":")
	if !isNamed {
		name = e.Actor
	}
	made := auditEntry{Entry: *e, Object: objectPath(e.Target), ByActor: with("actor", name),
		ByAction: with("action", e.Action), ByTarget: with("target", e.Target)}
	made.Sum, made.Changes = changesOf(e)
	if more := len(made.Changes) - maxChanges; more > 0 {
		made.Changes, made.More = made.Changes[:maxChanges], more
	}
	return made
}

// objectPath returns the page of what a target of the audit names; "" where there is none.
func objectPath(target string) string {
	kind, name, _ := strings.Cut(target, ":")
	switch {
	case name == "":
		return ""
	case kind == "queue":
		contract, queue, _ := strings.Cut(name, "/")
		if contract == "" || queue == "" {
			return ""
		}
		return pathOf("queues", contract, queue)
	case kind == "bulk":
		return pathOf(kind, name)
	case slices.Contains([]string{"job", "schedule", "webhook", "client"}, kind):
		return pathOf(kind+"s", name)
	case slices.Contains([]string{"worker", "node"}, kind):
		return pathOf("workers")
	case kind == "inbox":
		return pathOf(kind)
	case kind == "dead_letter":
		return pathOf("dead-letters", "list")
	}
	return ""
}

// changesOf returns what an entry says of how many jobs a bulk operation was about, and the members
// that differ before and after.
func changesOf(e *admin.Entry) (sum string, all []change) {
	before, after := membersOfState(e.Before), membersOfState(e.After)
	hasEnded := strings.HasPrefix(e.Action, "bulk.") && e.Action != "bulk.start"
	if hasEnded && after["done"] != "" {
		sum = pluralize(after["done"], "job") + " done, " + number(after["failed"]) + " failed, " +
			number(after["skipped"]) + " skipped"
		for _, name := range []string{"done", "failed", "skipped"} {
			delete(before, name)
			delete(after, name)
		}
	}
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, isThere := before[name]; !isThere {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		from, to := before[name], after[name]
		if from != to && !(before == nil && isZero(to)) && !(after == nil && isZero(from)) {
			all = append(all, change{strings.ReplaceAll(name, "_", " "), from, to})
		}
	}
	return sum, all
}

// isZero reports whether a member of what was made or removed says nothing.
func isZero(value string) bool {
	return value == "" || value == "0" || value == "false" || value == "none"
}

// membersOfState returns the members of a state of the audit as texts, nil for none. Those of a
// member follow its name after a dot.
func membersOfState(raw json.RawMessage) map[string]string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var state map[string]any
	if d.Decode(&state) != nil || state == nil {
		return nil
	}
	all := map[string]string{}
	addMembers(all, "", state)
	return all
}

// addMembers adds the members of an object, whose names begin with a prefix.
func addMembers(all map[string]string, prefix string, object map[string]any) {
	for name, value := range object {
		switch v := value.(type) {
		case map[string]any:
			addMembers(all, prefix+name+".", v)
		case string:
			all[prefix+name] = v
		case nil:
			all[prefix+name] = "none"
		default:
			text, _ := json.Marshal(v) // it was JSON
			all[prefix+name] = strings.Trim(string(text), "[]")
		}
	}
}
