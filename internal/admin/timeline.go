package admin

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// A timeline is made of what several places have about a job. The engine reads its own facts, those
// of the audit and those of the contract in one view, so that all are of one moment. The log of a
// job, which a stream may have, is read afterwards: where it cannot be read, an entry says so and
// the rest is shown. Package job makes the entries and their order.

// Timeline returns what happened to the job with a number, the oldest first (AD-014). truncated
// says that there is more than job.MaxEntries. NotFound if there is no such job.
func (a *API) Timeline(ctx context.Context, number int64) (entries []job.Entry, truncated bool,
	err error) {
	f, err := a.Engine.Timeline(ctx, number, a.addOperators, a.addContract)
	if job.IsKind(err, job.NotFound) {
		return nil, false, errJobNotFound
	}
	if err != nil {
		return nil, false, err
	}
	o := a.operatorOf(f.Job.ID.JobType)
	if o.Log != nil {
		f.More = append(f.More, logOf(ctx, o.Log, &f)...)
	}
	o.HideSecrets(f.Job)
	f.Word = func(j *job.Job) string { return a.operatorOf(j.ID.JobType).StateOf(j) }
	entries, truncated = job.Timeline(&f)
	return entries, truncated, nil
}

// logOf returns the entries of the log of a job. Where it cannot be read now, an entry says so.
func logOf(ctx context.Context, read func(context.Context, *job.Job) ([]job.Entry, error),
	f *job.TimelineInput) []job.Entry {
	entries, err := read(ctx, f.Job)
	if err != nil {
		return []job.Entry{{At: f.Now, Kind: job.EntryLog,
			Text: "the log cannot be read now: " + err.Error()}}
	}
	return entries
}

// addContract adds what the contract of the job knows.
func (a *API) addContract(r engine.TimelineReader, f *job.TimelineInput) error {
	if add := a.operatorOf(f.Job.ID.JobType).Timeline; add != nil {
		return add(r, f)
	}
	return nil
}

// addOperators adds what operators have done to the job, by the audit.
func (a *API) addOperators(r engine.TimelineReader, f *job.TimelineInput) error {
	target := "job:" + strconv.FormatInt(f.Job.Seq, 10)
	records, err := r.Records(auditByTargetKind, ownerOf(target), "", job.MaxEntries+1)
	if err != nil {
		return err
	}
	for i := range records {
		e, err := decodeEntry(&records[i])
		if err != nil {
			return err
		}
		if e.Target != target {
			continue
		}
		text := e.Action + " by " + e.Actor
		if e.RefusalCode != "" {
			text += ", refused: " + e.RefusalCode
		}
		f.More = append(f.More, job.Entry{At: e.At, Kind: job.EntryOperator, Text: text,
			Actor: e.Actor, Action: e.Action})
	}
	return nil
}

// showTimeline is GET /admin/v1/jobs/{number}/timeline.
func (a *API) showTimeline(c *httpapi.Call) error {
	number, err := pathNumber(c)
	if err != nil {
		return err
	}
	entries, truncated, err := a.Timeline(c.Context(), number)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := strictjson.NewObject(make([]byte, 0, 64+512*len(entries)))
	o.Objects("entries", len(entries), func(i int, o *strictjson.Object) {
		writeEntry(o, shown, &entries[i])
	})
	o.Bool("truncated", truncated)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// writeEntry writes the members of an entry of a timeline.
func writeEntry(o *strictjson.Object, d disclosure, e *job.Entry) {
	o.Time("at", e.At)
	o.Text("kind", string(e.Kind))
	d.text(o, "text", strings.ToValidUTF8(e.Text, "\uFFFD"))
	if lasted, ok := e.Lasted(); ok {
		o.Raw("lasted", strconv.AppendFloat(nil, lasted.Seconds(), 'f', 6, 64))
	} else {
		o.Null("lasted")
	}
	o.Optional("state", e.State)
	o.Optional("cause", string(e.Cause))
	o.Optional("worker", e.Worker)
	run := ""
	if !e.Run.IsZero() {
		run = e.Run.String()
	}
	o.Optional("run_id", run)
	if e.Kind == job.EntryAttempt {
		o.Time("from", e.At)
		o.Time("to", e.Until)
	} else {
		o.Null("from")
		o.Null("to")
	}
	o.Optional("outcome", e.Outcome)
	d.text(o, "error", strings.ToValidUTF8(e.Error, "\uFFFD"))
	writePositive(o, "number", e.Number)
	o.Optional("id", e.ID)
	o.Optional("actor", e.Actor)
	o.Optional("action", e.Action)
}
