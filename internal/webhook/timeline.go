package webhook

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Deliveries appear in two timelines: their own, with a line for each attempt, and that of the job
// whose event they deliver, with a line for each delivery. For the latter nothing is searched: the
// id of a delivery follows from owner, event and URL, so the deliveries of a chain's events are
// read by their ids. Those of subscriptions that are gone are not found.

// Timeline says of a delivery which attempts it has had: its jobs keep no history.
func Timeline(_ engine.TimelineReader, f *job.TimelineInput) error {
	attempts, err := decodeAttempts(f.Job)
	if err != nil {
		return err
	}
	f.Attempts = []job.Entry{}
	for i := range attempts {
		f.Attempts = append(f.Attempts, attempts[i].entry(i+1))
	}
	if f.Job.State == sending {
		f.Attempts = append(f.Attempts, job.Entry{At: f.Job.StartedAt, Kind: job.EntryAttempt,
			Worker: f.Job.Worker, Run: f.Job.Run, Outcome: job.OutcomeRunning,
			Text: fmt.Sprintf("attempt %d is running", len(attempts)+1)})
	}
	f.Job.Progress = nil // these are the attempts
	return nil
}

// Hide takes the query out of the URL of a delivery: it may be secret. A definition that cannot be
// read is taken as a whole.
func Hide(j *job.Job) {
	p, err := decodeDelivery(j)
	if err != nil {
		j.Definition = nil
		return
	}
	p.URL = WithoutQuery(p.URL)
	j.Definition, _ = json.Marshal(p) // texts and numbers can be encoded
}

// WithoutQuery returns a URL without what may be secret in it.
func WithoutQuery(url string) string {
	before, _, found := strings.Cut(url, "?")
	if found {
		before += "?…"
	}
	return before
}

// entry returns attempt n as an attempt.
func (t *Attempt) entry(n int) job.Entry {
	e := job.Entry{At: t.StartedAt, Kind: job.EntryAttempt, Outcome: string(job.Succeeded),
		Until: t.StartedAt.Add(time.Duration(t.DurationMS) * time.Millisecond)}
	if t.Error != nil {
		e.Outcome, e.Error = string(job.Failed), *t.Error
	}
	e.Text = fmt.Sprintf("attempt %d %s", n, e.Outcome)
	if t.StatusCode != nil {
		e.Text += fmt.Sprintf(" with status %d", *t.StatusCode)
	}
	return e
}

// loadBatch is how many deliveries are read at once.
const loadBatch = 500

// Entries returns the deliveries of events of an owner's chain, as entries of the timeline of what
// the chain is about: those to the subscriptions that there are now, and to its callback. A URL may
// be secret, so only its host is named.
func Entries(r engine.TimelineReader, owner, callback string, events []EventRef) ([]job.Entry,
	error) {
	records, err := r.Records(subscriptionRecord, owner, "", maxSubscriptions)
	if err != nil {
		return nil, err
	}
	urls := map[string]bool{}
	if callback != "" {
		urls[callback] = true
	}
	for i := range records {
		s, err := decodeRecord(&records[i])
		if err != nil { // it gets no events either
			continue
		}
		urls[s.URL] = true
	}
	var ids []job.ID
	for _, e := range events {
		for to := range urls {
			ids = append(ids, jobID(deliveryID(owner, e.ID, to)))
		}
	}
	var all []job.Entry
	for batch := range slices.Chunk(ids[:min(len(ids), maxSearched)], loadBatch) {
		jobs, err := r.Load(store.Selector{IDs: batch, Bodies: store.DefinitionOnly})
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			all = append(all, deliveryEntry(j))
		}
	}
	return all, nil
}

// hostOf returns the host of the URL of a delivery.
func hostOf(j *job.Job) string {
	p, err := decodeDelivery(j)
	if err != nil {
		return "its receiver"
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return "its receiver"
	}
	return u.Host
}

// deliveryEntry returns a delivery as an entry of a timeline.
func deliveryEntry(j *job.Job) job.Entry {
	e := job.Entry{At: j.CreatedAt, Kind: job.EntryDelivery, Number: j.Seq, ID: j.ID.Key,
		State: string(statusOf(j)), Until: j.FinishedAt}
	e.Text = fmt.Sprintf("%s to %s: %s", j.Kind, hostOf(j), e.State)
	if j.FailedAttempts > 0 {
		e.Text += fmt.Sprintf(", failed attempts: %d", j.FailedAttempts)
	}
	return e
}
