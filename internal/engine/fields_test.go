package engine_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/storetest"
)

// engineFields are the fields of a job that the engine owns, each with the reason: what a
// submitter leaves in them is not stored. Every other field is carried through submit, replace
// and edit. A field added to job.Job is either in this list or carried.
var engineFields = map[string]string{
	"Seq":            "the store numbers jobs",
	"Searchable":     "its contract says so",
	"State":          "the machine's",
	"Phase":          "the machine's",
	"Run":            "of a claim",
	"LeaseUntil":     "of a claim",
	"Worker":         "of a claim",
	"Attempts":       "counted",
	"FailedAttempts": "counted",
	"LostAttempts":   "counted",
	"OpenDeps":       "counted",
	"FailedDeps":     "counted",
	"Parent":         "Submission.Parent says it",
	"Children":       "counted",
	"OutOfLine":      "the store's",
	"CreatedAt":      "the time of the submission",
	"UpdatedAt":      "the time of the change",
	"StartedAt":      "the time of the start",
	"FinishedAt":     "the time of the end",
}

// engineFieldsAnd returns engineFields and more.
func engineFieldsAnd(more map[string]string) map[string]string {
	all := maps.Clone(engineFields)
	maps.Copy(all, more)
	return all
}

// checkFields checks that got has every field of want but those the engine owns, and nothing of
// given in those.
func (w *world) checkFields(verb string, got, given *job.Job, owned map[string]string) {
	w.Helper()
	different := storetest.DifferentFields(got, given)
	for _, name := range different {
		if owned[name] == "" {
			w.Errorf("%s: %s is not carried", verb, name)
		}
	}
	for name, why := range owned {
		if !slices.Contains(different, name) {
			w.Errorf("%s: %s is taken from the caller, but it is the engine's: %s", verb, name, why)
		}
	}
}

// callerJob is a job as a caller submits it, with a value in every field, those of the engine too.
func callerJob(salt int) *job.Job {
	j := storetest.FilledJob(salt)
	j.ID = id("brief/a:1")
	j.Searchable = true // the job type's jobs are not
	return j
}

func TestFieldsAreKept(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		outcome := map[string]string{"Result": "of an attempt", "Failure": "of an attempt"}
		size := map[string]string{"Size": "a parent's has those of its children: only submitted"}
		replaced := maps.Clone(outcome)
		maps.Copy(replaced, size)

		s := callerJob(0)
		w.submit(engine.Submission{Job: *s})
		w.checkFields("submit", w.get("brief/a:1"), s, engineFieldsAnd(outcome))

		s = callerJob(1)
		if _, err := w.engine.Submit(w.ctx, engine.Replace,
			subs(engine.Submission{Job: *s})); err != nil {
			w.Fatal(err)
		}
		w.checkFields("replace", w.get("brief/a:1"), s, engineFieldsAnd(replaced))

		s = callerJob(2)
		w.noError(errOf(w.engine.Change(w.ctx, s.ID, job.Replaced,
			func(j *job.Job, _ time.Time) error {
				*j = *s
				return nil
			})))
		w.checkFields("edit", w.get("brief/a:1"), s, engineFieldsAnd(size))
	})
}

// TestEngineFieldsExist keeps the list true: a name in it is a field of a job.
func TestEngineFieldsExist(t *testing.T) {
	var strange []string
	for name := range engineFields {
		if _, is := reflect.TypeFor[job.Job]().FieldByName(name); !is {
			strange = append(strange, name)
		}
	}
	if len(strange) > 0 {
		t.Errorf("no fields of a job: %s", strings.Join(strange, ", "))
	}
}

// TestReplacedJobBeginsAnew: a job that is replaced after an attempt was lost has what a new one
// has. It keeps its number and the time it was created, and tells when and by whom it was claimed
// last.
func TestReplacedJobBeginsAnew(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"))
		w.clock.Advance(w.claim("brief", 1)[0].Lease)
		_, err := w.engine.Expire(w.ctx)
		w.noError(err)
		w.claim("brief", 1)
		_, err = w.engine.Submit(w.ctx, engine.Replace, []engine.Submission{sub("brief/a")})
		w.noError(err)
		payload := sub("brief/a").Job.Payload
		w.submit(sub("brief/new", with(func(j *job.Job) { j.Payload = payload })))
		got := storetest.DifferentFields(w.get("brief/a"), w.get("brief/new"))
		if want := []string{"Seq", "ID", "Worker", "CreatedAt", "UpdatedAt",
			"StartedAt"}; !slices.Equal(got, want) {
			w.Errorf("the replaced job differs from a new one in %v, want %v", got, want)
		}
	})
}
