package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Dead letters of all contracts. Each is in the list of the contract that clients know: that of the
// tasks of FetchBox is fetchbox.
//
// A group has the open dead letters of one fingerprint, which is made of contract, queue, error
// type and the error's text without what differs from job to job, such as numbers. The store groups
// the newest maxGrouped dead letters of each job type; searched_to says from when on a list of
// groups is whole. A replay is done by the contract, which alone knows what its job may be run as,
// and the note that the dead letter was replayed is written in the transaction of that
// (Engine.ReplayDeadLetter).

// deadLetterRoutes are the routes of dead letters.
func (a *API) deadLetterRoutes() []route {
	const all = apiPrefix + "/dead-letters"
	return []route{
		{method: "GET", pattern: all, action: "dead_letter.list", handle: a.listDeadLetters,
			query: httpapi.PageQuery(append(slices.Clone(deadLetterFilterNames), "job_id")...)},
		{method: "GET", pattern: all + "/groups", action: "dead_letter.groups",
			handle: a.listDeadLetterGroups, query: httpapi.PageQuery("contract")},
		{method: "GET", pattern: all + "/{id}", action: "dead_letter.show",
			handle: a.showDeadLetter},
		{method: "POST", pattern: all + "/{id}/replay", action: "dead_letter.replay",
			handle: a.replayDeadLetter, target: deadLetterTarget, body: true},
		{method: "DELETE", pattern: all + "/{id}", action: "dead_letter.discard",
			handle: a.discardDeadLetter, target: deadLetterTarget},
	}
}

// deadLetterTarget names the dead letter of the path for the audit.
func deadLetterTarget(c *httpapi.Call) string { return "dead_letter:" + c.PathValue("id") }

// readDeadLetterFilter reads the filters of a request.
func (a *API) readDeadLetterFilter(c parameters) (f bulk.DeadLetterFilter, err error) {
	if f.JobTypes, err = a.readDeadContracts(c); err != nil {
		return f, err
	}
	return f, firstError(readText(c, "queue", &f.Queue), readText(c, "fingerprint", &f.Fingerprint),
		readText(c, "job_id", &f.JobID), readText(c, "error", &f.Error),
		readRange(c, "from", &f.From, "to", &f.To))
}

// readDeadContracts reads the filter of a contract, and returns the job types that it stands for.
func (a *API) readDeadContracts(c parameters) ([]string, error) {
	name := ""
	if err := readText(c, "contract", &name); err != nil {
		return nil, err
	}
	return a.deadContracts(name)
}

// deadContracts returns the job types whose jobs leave dead letters, of one contract that clients
// know; "" means all.
func (a *API) deadContracts(name string) ([]string, error) {
	jobs, err := a.jobTypesOf(name)
	return slices.DeleteFunc(jobs, func(jobType string) bool {
		return a.operatorOf(jobType).Replay == nil
	}), err
}

var deadLetterPages = newPages(httpapi.Named("dead-letters", httpapi.ByNumber))

// listDeadLetters is GET /admin/v1/dead-letters (AD-050): the oldest first. A page may be shorter
// than its limit, even empty, while there is a next one.
func (a *API) listDeadLetters(c *httpapi.Call) error {
	page, next, err := a.ListDeadLetters(c, bulk.MaxSearchTime)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(page.Items), next, func(i int, o *strictjson.Object) {
		writeDeadLetter(o, shown, &page.Items[i])
	})
	o.Time("searched_to", page.SearchedTo)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// DeadLetterPage is a page of dead letters.
type DeadLetterPage struct {
	Items []job.DeadLetter
	Limit int // how many a whole page has
	// SearchedTo is when the last one was created that was looked at, where there is a next page.
	SearchedTo time.Time
}

// ListDeadLetters returns the dead letters that the query of a call asks for, and the cursor of the
// next page. A search of texts goes on for searchTime.
func (a *API) ListDeadLetters(c *httpapi.Call, searchTime time.Duration) (page DeadLetterPage,
	next string, err error) {
	if err := a.disclosureTo(c).checkSearch(c); err != nil {
		return page, "", err
	}
	f, err := a.readDeadLetterFilter(c)
	if err != nil {
		return page, "", err
	}
	limit, after, err := deadLetterPages.Read(c)
	if err != nil {
		return page, "", err
	}
	found, err := a.bulk.FindDeadLetters(c.Context(), &f, boundsOf(f.SearchesTexts(), searchTime,
		bulk.JobPage{After: after, Limit: limit}))
	if err != nil {
		return page, "", err
	}
	if found.Next > 0 {
		next = deadLetterPages.Cursor.Format(found.Next)
	}
	return DeadLetterPage{found.DeadLetters, limit, found.SearchedTo}, next, nil
}

// writeDeadLetter writes the members of a dead letter.
func writeDeadLetter(o *strictjson.Object, d disclosure, l *job.DeadLetter) {
	o.Int("id", l.ID)
	writeReason(o, d, l)
	o.Int("number", l.Job.Seq)
	o.Text("job_id", l.Job.ID.Key)
	o.Int("attempts", int64(l.Job.Attempts))
	o.Optional("worker", l.Job.Worker)
	o.Time("at", l.CreatedAt)
	o.Time("replayed_at", l.ReplayedAt)
	if l.IsOpen() {
		o.Null("replayed_as")
	} else {
		o.Int("replayed_as", l.ReplayedAs)
	}
}

// writeReason writes what dead letters with one fingerprint have in common, and the error of one.
func writeReason(o *strictjson.Object, d disclosure, l *job.DeadLetter) {
	kind, text := l.Failure()
	o.Text("fingerprint", l.Fingerprint())
	o.Text("contract", contract.PublicName(l.Job.ID.JobType))
	o.Text("queue", l.Job.Queue)
	d.text(o, "error_type", kind)
	d.text(o, "error", strings.ToValidUTF8(text, "\uFFFD"))
}

// maxGrouped is how many open dead letters of a job type are grouped by one request, the newest.
// The engine remembers them.
const maxGrouped = 100_000

// groupKey orders groups: the largest come first.
func groupKey(g *job.DeadLetterGroup) string {
	return fmt.Sprintf("%016x", math.MaxInt64-g.Count) + g.Fingerprint
}

var groupPages = newPages(nameCursor("groups"))

// listDeadLetterGroups is GET /admin/v1/dead-letters/groups (AD-050): the groups of open dead
// letters, the largest first.
func (a *API) listDeadLetterGroups(c *httpapi.Call) error {
	page, next, searchedTo, err := a.ListDeadLetterGroups(c)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		writeReason(o, shown, page[i].Newest)
		o.Int("count", page[i].Count)
		o.Time("first_at", page[i].FirstAt)
		o.Time("last_at", page[i].LastAt)
	})
	o.Time("searched_to", searchedTo)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// DeadLetterGroup is a group of open dead letters with the newest of them.
type DeadLetterGroup struct {
	job.DeadLetterGroup
	Newest *job.DeadLetter
}

// ListDeadLetterGroups returns the groups that the query of a call asks for, the cursor of the next
// page and the time of the oldest dead letter that was looked at, where there may be older ones.
func (a *API) ListDeadLetterGroups(c *httpapi.Call) (page []DeadLetterGroup, next string,
	searchedTo time.Time, err error) {
	contracts, err := a.readDeadContracts(c)
	if err != nil {
		return nil, "", searchedTo, err
	}
	limit, after, err := groupPages.Read(c)
	if err != nil {
		return nil, "", searchedTo, err
	}
	all, searchedTo, err := a.groupDeadLetters(c.Context(), contracts)
	if err != nil {
		return nil, "", searchedTo, err
	}
	groups, next := pageOf(all, groupKey, &groupPages, after, limit)
	newest := make([]int64, len(groups))
	for i := range groups {
		newest[i] = groups[i].LastID
	}
	samples, err := a.Engine.DeadLettersByID(c.Context(), newest...)
	if err != nil {
		return nil, "", searchedTo, err
	}
	byID := map[int64]*job.DeadLetter{}
	for i := range samples {
		byID[samples[i].ID] = &samples[i]
	}
	for _, g := range groups {
		if l := byID[g.LastID]; l != nil { // else it was discarded meanwhile
			page = append(page, DeadLetterGroup{g, l})
		}
	}
	return page, next, searchedTo, nil
}

// groupDeadLetters groups the open dead letters of contracts. searchedTo is the time of the
// oldest that was looked at, where there may be older ones.
func (a *API) groupDeadLetters(ctx context.Context, contracts []string) (all []job.DeadLetterGroup,
	searchedTo time.Time, err error) {
	byContract, _, err := a.Engine.DeadLetterGroups(ctx, contracts, maxGrouped)
	for _, found := range byContract {
		oldest := time.Time{}
		for _, g := range found.Groups {
			all = append(all, g)
			if oldest.IsZero() || g.FirstAt.Before(oldest) {
				oldest = g.FirstAt
			}
		}
		if found.More && oldest.After(searchedTo) {
			searchedTo = oldest
		}
	}
	return all, searchedTo, err
}

// showDeadLetter is GET /admin/v1/dead-letters/{id}.
func (a *API) showDeadLetter(c *httpapi.Call) error {
	l, err := a.pathDeadLetter(c)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	writeDeadLetter(&o, a.disclosureTo(c), &l)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// pathDeadLetter loads the dead letter of the path. IDs are unique over all contracts.
func (a *API) pathDeadLetter(c *httpapi.Call) (l job.DeadLetter, err error) {
	id, ok := parsePathNumber(c.PathValue("id"))
	if !ok {
		return l, engine.ErrNoDeadLetter
	}
	contracts, err := a.deadContracts("")
	if err != nil {
		return l, err
	}
	found, err := a.Engine.DeadLettersByID(c.Context(), id)
	if err != nil {
		return l, err
	}
	if len(found) == 0 || !slices.Contains(contracts, found[0].Job.ID.JobType) {
		return l, engine.ErrNoDeadLetter
	}
	return found[0], nil
}

// replayDeadLetter is POST /admin/v1/dead-letters/{id}/replay: it answers the job that runs then
// (AD-051).
func (a *API) replayDeadLetter(c *httpapi.Call) error {
	body, err := readMembers(c, "again")
	if err != nil {
		return err
	}
	again := false
	for _, value := range strictjson.Members(body) {
		if again, err = strictjson.Bool(value); err != nil {
			return invalid("again must be true or false")
		}
	}
	number, j, err := a.ReplayDeadLetter(c, again)
	if err != nil {
		return err
	}
	return a.sendJob(c, http.StatusOK, number, j)
}

// ReplayDeadLetter replays the dead letter of the path of a call. It returns the number of its job,
// and the job that runs then.
func (a *API) ReplayDeadLetter(c *httpapi.Call, again bool) (number int64, j *job.Job, err error) {
	l, err := a.pathDeadLetter(c)
	if err != nil {
		return 0, nil, err
	}
	o := a.operatorOf(l.Job.ID.JobType)
	j, err = a.Engine.ReplayDeadLetter(c.Context(), engine.Replay{DeadLetter: &l, Do: o.Replay,
		Again: again,
		Record: func(w engine.RecordWriter, before, after *job.DeadLetter) error {
			return a.record(w, c, replayState(before), replayState(after))
		}})
	if errors.Is(err, engine.ErrReplayed) || errors.Is(err, engine.ErrNoDeadLetter) {
		return 0, nil, err
	}
	if err != nil {
		return 0, nil, translateError(o, err)
	}
	return l.Job.Seq, j, nil
}

// replayState returns what the audit keeps of a dead letter: nil for one that is open.
func replayState(l *job.DeadLetter) any {
	if l.IsOpen() {
		return nil
	}
	return struct {
		At time.Time `json:"at"`
		As int64     `json:"as"`
	}{l.ReplayedAt, l.ReplayedAs}
}

// discardDeadLetter is DELETE /admin/v1/dead-letters/{id} (AD-051).
func (a *API) discardDeadLetter(c *httpapi.Call) error {
	if err := a.DiscardDeadLetter(c); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// DiscardDeadLetter deletes the dead letter of the path of a call.
func (a *API) DiscardDeadLetter(c *httpapi.Call) error {
	l, err := a.pathDeadLetter(c)
	if err != nil {
		return err
	}
	return a.Engine.DiscardDeadLetter(c.Context(), l.Job.ID.JobType, l.ID,
		func(w engine.RecordWriter, l *job.DeadLetter) error {
			return a.record(w, c, a.stateOf(&l.Job), nil)
		})
}
