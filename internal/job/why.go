package job

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ReasonCode names why a job does not run, or that it does (AD-015).
type ReasonCode string

// The codes.
const (
	ReasonRunning              ReasonCode = "running"
	ReasonNotDue               ReasonCode = "not_due"
	ReasonBackingOff           ReasonCode = "backing_off"
	ReasonWaitsForDependencies ReasonCode = "waits_for_dependencies"
	ReasonWaitsForChildren     ReasonCode = "waits_for_children"
	ReasonDependencyFailed     ReasonCode = "dependency_failed"
	ReasonQueuePaused          ReasonCode = "queue_paused"
	ReasonQueueLimit           ReasonCode = "queue_limit"
	ReasonJobTypeLimit         ReasonCode = "contract_limit"
	ReasonRateLimited          ReasonCode = "rate_limited"
	ReasonBehindOtherJobs      ReasonCode = "behind"
	ReasonNoWorkers            ReasonCode = "nobody_asks"
	ReasonNodeDraining         ReasonCode = "node_draining"
	ReasonMessagePending       ReasonCode = "message_pending"
	ReasonDone                 ReasonCode = "done"
	ReasonDead                 ReasonCode = "dead"
)

// Why says why a job does not run, or that it does.
type Why struct {
	Number   int64
	JobType  string
	Queue    string
	Sentence string
	Reasons  []Reason
	// Next is the earliest time at which that may change by itself; zero is not known.
	Next time.Time
}

// Reason is one reason. Text is a sentence for people, Facts are what it was made of.
type Reason struct {
	Code  ReasonCode
	Text  string
	Facts []Fact
	until time.Time // when it ends by itself; zero is not known
}

// Fact is a named value: an int, a string, a time, a duration, a number, a list of texts or of
// relatives, or the answer about another job.
type Fact struct {
	Name  string
	Value any
}

// Relative is a job that another one waits for, or that has failed it.
type Relative struct {
	Number int64
	ID     string
	State  State
}

// The bounds of the facts.
const (
	MaxRelativesShown = 10
	MaxChain          = 20     // jobs that are followed from one to the one that it waits for
	MaxErrorShown     = 200    // characters of the error of a dead letter
	MaxAhead          = 10_000 // jobs that are counted exactly
	MaxMessagesAhead  = 1_000  // messages that are counted exactly
	// PolledRecently is how long ago a queue may have been polled without being one that nobody
	// asks for (G-AD-08).
	PolledRecently = 30 * time.Second
)

// ExplainInput are what Explain needs to know of a job, all of one moment.
type ExplainInput struct {
	Now time.Time
	Job *Job

	// Dependencies are the first that are open; in a job that is done, that have failed.
	// OpenDependencies and OpenChildren are how many of them there are.
	Dependencies     []Relative
	OpenDependencies int
	OpenChildren     int
	// Chain are the jobs from the first dependency that does not run to the one that waits for no
	// other, at most MaxChain. Root is about the last of them; nil where there are none.
	Chain []Relative
	Root  *ExplainInput
	// Unsatisfied says that the job is done because a dependency failed.
	Unsatisfied bool
	// Canceled says that the job is done because somebody has canceled it.
	Canceled bool
	// DeadLetter is the open one of the job, nil for none. Of a job that is not stored any more it
	// is the latest, which may have been replayed.
	DeadLetter *DeadLetter
	// HidesFailure leaves the error of the dead letter out.
	HidesFailure bool

	Paused                       bool
	PausedBy                     string    // empty: not known
	PausedAt                     time.Time // where PausedBy is known
	QueueLimit, QueueRunning     int       // no limit is 0
	JobTypeLimit, JobTypeRunning int
	MaxQueueSize, QueueSize      int // ready jobs of the job type; no limit is 0
	Rate                         Rate
	NextStart                    time.Time // when the rate allows one; not later than Now is now
	Ahead                        int       // jobs that are claimed before; at most MaxAhead+1
	StartedPerMinute             float64   // jobs of the queue, lately; 0 is none, or not known
	Pollers                      Pollers
	MessagePending               bool
	MessagesAhead                int // before that of the job; at most MaxMessagesAhead
}

// Pollers are the workers that poll a queue, over all nodes.
type Pollers struct {
	Asking     bool      // a claim waits, or one came recently
	LastPolled time.Time // zero is never
	Workers    int       // that ask for the queue and are not drained
	Names      []string  // of the first of these
	// DrainedNodes are the nodes that are drained and whose workers take the queue otherwise, and
	// DrainedWorkers the workers that are drained by name.
	DrainedNodes   []string
	DrainedWorkers []string
}

// Explain says why a job does not run. All reasons that hold are listed, the one that holds it
// longest first: the jobs that it waits for, as its queue does not matter before, then what only
// somebody can end, then what time ends, and then what the other jobs of its queue end.
func Explain(f *ExplainInput) Why {
	var reasons []Reason
	switch f.Job.Phase {
	case Done:
		reasons = f.done()
	case Leased:
		reasons = []Reason{f.running()}
	default:
		reasons = slices.Concat(f.relatives(), f.stopped(), f.waits(), f.backpressure())
	}
	w := Why{Number: f.Job.Seq, JobType: f.Job.ID.JobType, Queue: f.Job.Queue, Reasons: reasons}
	for _, r := range reasons {
		if !r.until.IsZero() && (w.Next.IsZero() || r.until.Before(w.Next)) {
			w.Next = r.until
		}
	}
	if len(reasons) > 0 {
		w.Sentence = reasons[0].Text
		return w
	}
	w.Sentence = "Nothing holds the job back: it is the next of queue " + f.queue() +
		" and is given to the next worker that asks."
	return w
}

// queue names the queue as operators do.
func (f *ExplainInput) queue() string { return f.Job.ID.JobType + "/" + f.Job.Queue }

// done are the reasons of a job that is done.
func (f *ExplainInput) done() (reasons []Reason) {
	j := f.Job
	if f.Unsatisfied {
		text := "The job was given up because a job that it depends on has failed"
		if len(f.Dependencies) > 0 {
			text += ": " + named(f.Dependencies)
		}
		reasons = append(reasons, Reason{Code: ReasonDependencyFailed, Text: text + ".",
			Facts: []Fact{{"dependencies", f.Dependencies}}})
	}
	if f.DeadLetter != nil {
		return append(reasons, f.givenUp(f.DeadLetter))
	}
	done := Reason{Code: ReasonDone,
		Facts: []Fact{{"state", string(j.State)}, {"settled_at", j.FinishedAt}}}
	what := "The job is done"
	if f.Canceled {
		what, done.Facts = "The job was canceled", append(done.Facts, Fact{"cause", string(Canceled)})
	}
	done.Text = fmt.Sprintf("%s: it has been %s since %s.", what, j.State,
		clock(f.Now, j.FinishedAt))
	return append(reasons, done)
}

// stopped are the reasons that last until somebody ends them.
func (f *ExplainInput) stopped() (reasons []Reason) {
	if f.Paused {
		r := Reason{Code: ReasonQueuePaused,
			Text: "Queue " + f.queue() + " is paused: no job of it starts until it is resumed."}
		if f.PausedBy != "" {
			r.Text += fmt.Sprintf(" It was paused %s by %s.", since(f.Now, f.PausedAt), f.PausedBy)
			r.Facts = []Fact{{"paused_by", f.PausedBy}, {"paused_at", f.PausedAt}}
		}
		reasons = append(reasons, r)
	}
	if f.Pollers.Asking {
		return reasons
	}
	t := &f.Pollers
	if len(t.DrainedNodes) > 0 {
		reasons = append(reasons, Reason{Code: ReasonNodeDraining,
			Text: fmt.Sprintf("The only workers for queue %s are on %s, which %s drained.",
				f.queue(), strings.Join(t.DrainedNodes, ", "), areOrIs(len(t.DrainedNodes))),
			Facts: []Fact{{"nodes", t.DrainedNodes}}})
	}
	text := "No worker has ever asked for jobs of queue " + f.queue() + "."
	facts := []Fact{{"since", "never"}, {"workers", t.Workers}}
	if !t.LastPolled.IsZero() {
		text = fmt.Sprintf("No worker has asked for jobs of queue %s for %s.", f.queue(),
			length(f.Now.Sub(t.LastPolled)))
		facts[0].Value = t.LastPolled
	}
	if t.Workers > 0 {
		text += fmt.Sprintf(" %s known for it and may be busy.", plural(t.Workers, "worker"))
	}
	if n := len(t.DrainedWorkers); n > 0 {
		text += fmt.Sprintf(" %s drained: %s.", plural(n, "worker"),
			strings.Join(t.DrainedWorkers, ", "))
		facts = append(facts, Fact{"drained_workers", t.DrainedWorkers})
	}
	return append(reasons, Reason{Code: ReasonNoWorkers, Text: text, Facts: facts})
}

// relatives are the reasons that end with other jobs.
func (f *ExplainInput) relatives() (reasons []Reason) {
	if n := f.OpenDependencies; n > 0 {
		text := fmt.Sprintf("The job waits for %s that it depends on: %s", count(n, "job"),
			named(f.Dependencies))
		if n > len(f.Dependencies) {
			text += fmt.Sprintf(" and %d more", n-len(f.Dependencies))
		}
		r := Reason{Code: ReasonWaitsForDependencies, Text: text + ".",
			Facts: []Fact{{"open", n}, {"dependencies", f.Dependencies}}}
		f.addRoot(&r)
		reasons = append(reasons, r)
	}
	if n := f.OpenChildren; n > 0 {
		reasons = append(reasons, Reason{Code: ReasonWaitsForChildren,
			Text: fmt.Sprintf("The job waits for %d of its %s to end.", n,
				count(f.Job.Children, "part")),
			Facts: []Fact{{"open", n}, {"children", f.Job.Children}}})
	}
	return reasons
}

// addRoot adds to the reason of open dependencies why the job at the end of the chain does not run.
func (f *ExplainInput) addRoot(r *Reason) {
	if f.Root == nil || len(f.Chain) == 0 {
		return
	}
	root := Explain(f.Root)
	where := fmt.Sprintf("Job %d", root.Number)
	if n := len(f.Chain); n > 1 {
		where = "The chain of dependencies ends at " + named(f.Chain[n-1:])
	}
	texts := []string{root.Sentence}
	for i := 1; i < len(root.Reasons); i++ {
		texts = append(texts, root.Reasons[i].Text)
	}
	r.Text += fmt.Sprintf(" %s: %s", where, strings.Join(texts, " "))
	r.Facts = append(r.Facts, Fact{"chain", f.Chain}, Fact{"root", &root})
}

// waits are the reasons that end with a message, and then with time: the last one first.
func (f *ExplainInput) waits() (reasons []Reason) {
	if f.MessagePending {
		text, facts := "The message that hands the job to a worker has not been sent", []Fact(nil)
		if n := f.MessagesAhead; n > 0 {
			text += fmt.Sprintf(": %s before it", upTo(n, MaxMessagesAhead, "message", "is"))
			facts = []Fact{atLeast("messages_ahead", n, MaxMessagesAhead)}
		}
		reasons = append(reasons, Reason{Code: ReasonMessagePending, Text: text + ".",
			Facts: facts})
	}
	timed := f.timed()
	slices.SortStableFunc(timed, func(a, b Reason) int { return b.until.Compare(a.until) })
	return append(reasons, timed...)
}

// timed are the reasons that end at a time that is known.
func (f *ExplainInput) timed() (reasons []Reason) {
	j := f.Job
	if j.Phase == Waiting && j.DueAt.After(f.Now) {
		r := Reason{Code: ReasonNotDue, until: j.DueAt, Facts: []Fact{{"due_at", j.DueAt}},
			Text: fmt.Sprintf("The job is not due before %s, in %s.", clock(f.Now, j.DueAt),
				length(j.DueAt.Sub(f.Now)))}
		if j.Attempts > 0 {
			r.Code = ReasonBackingOff
			r.Text = fmt.Sprintf("The job waits after attempt %d, of which %d failed, and is "+
				"tried again at %s, in %s.", j.Attempts, j.FailedAttempts, clock(f.Now, j.DueAt),
				length(j.DueAt.Sub(f.Now)))
			r.Facts = append(r.Facts, Fact{"attempts", j.Attempts},
				Fact{"failures", j.FailedAttempts})
		}
		reasons = append(reasons, r)
	}
	if f.isReady() && !f.Rate.IsZero() && f.NextStart.After(f.Now) {
		reasons = append(reasons, Reason{Code: ReasonRateLimited, until: f.NextStart,
			Text: fmt.Sprintf("Queue %s starts at most %s in %s; the next start is allowed at %s, "+
				"in %s.", f.queue(), count(f.Rate.Starts, "job"), length(f.Rate.Period),
				clock(f.Now, f.NextStart), length(f.NextStart.Sub(f.Now))),
			Facts: []Fact{{"rate", f.Rate.Starts}, {"rate_period", f.Rate.Period},
				{"next_start_at", f.NextStart}}})
	}
	return reasons
}

// isReady reports whether nothing but what concerns its queue holds the job back.
func (f *ExplainInput) isReady() bool {
	j := f.Job
	return j.Phase == Ready || (j.OpenDeps == 0 && !j.DueAt.After(f.Now))
}

// backpressure are the reasons that end as other jobs of the job type run.
func (f *ExplainInput) backpressure() (reasons []Reason) {
	if !f.isReady() {
		return nil
	}
	limit := func(code ReasonCode, of string, running, max int) {
		if max > 0 && running >= max {
			reasons = append(reasons, Reason{Code: code,
				Text: fmt.Sprintf("%s runs %s, and at most %d at a time.", of,
					count(running, "job"), max),
				Facts: []Fact{{"running", running}, {"limit", max}}})
		}
	}
	limit(ReasonJobTypeLimit, "Job type "+f.Job.ID.JobType, f.JobTypeRunning, f.JobTypeLimit)
	if f.Job.Phase == Waiting && f.MaxQueueSize > 0 && f.QueueSize >= f.MaxQueueSize {
		reasons = append(reasons, Reason{Code: ReasonJobTypeLimit,
			Text: fmt.Sprintf("The job is due, but job type %s has %d ready jobs and takes no "+
				"more than %d.", f.Job.ID.JobType, f.QueueSize, f.MaxQueueSize),
			Facts: []Fact{{"queue_size", f.QueueSize}, {"limit", f.MaxQueueSize}}})
	}
	limit(ReasonQueueLimit, "Queue "+f.queue(), f.QueueRunning, f.QueueLimit)
	if f.Ahead > 0 {
		reasons = append(reasons, f.behind())
	}
	return reasons
}

// behind is the reason of a job that others come before, with how fast these go.
func (f *ExplainInput) behind() Reason {
	r := Reason{Code: ReasonBehindOtherJobs, Facts: []Fact{atLeast("ahead", f.Ahead, MaxAhead),
		{"running", f.QueueRunning}, {"workers", f.Pollers.Workers}}}
	r.Text = fmt.Sprintf("In queue %s %s before the job.", f.queue(),
		upTo(f.Ahead, MaxAhead, "job", "comes"))
	if f.QueueLimit > 0 {
		r.Facts = append(r.Facts, Fact{"limit", f.QueueLimit})
	}
	if f.QueueRunning > 0 {
		r.Text += " " + upTo(f.QueueRunning, f.QueueRunning, "job", "runs") + " now"
		if f.QueueLimit > 0 {
			r.Text += fmt.Sprintf(" of at most %d", f.QueueLimit)
		}
		if n := f.Pollers.Workers; n > 0 {
			r.Text += fmt.Sprintf(", and %s known for it", plural(n, "worker"))
		}
		r.Text += "."
	}
	isServed := f.Pollers.Asking || f.Pollers.Workers > 0
	if f.Paused || !isServed || f.StartedPerMinute <= 0 {
		return r
	}
	left := time.Duration(float64(f.Ahead) / f.StartedPerMinute * float64(time.Minute))
	r.Text += fmt.Sprintf(" About %s a minute, so it starts in about %s.",
		perMinute(f.StartedPerMinute), length(left))
	r.Facts = append(r.Facts, Fact{"started_per_minute", f.StartedPerMinute},
		Fact{"starts_in", max(time.Second, left.Round(time.Second))})
	return r
}

// perMinute writes how many jobs start in a minute.
func perMinute(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.1f start", n)
	}
	return fmt.Sprintf("%.0f start", n)
}

// firstLine returns the start of a text, one line at most.
func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(text); len(runes) > MaxErrorShown {
		return string(runes[:MaxErrorShown-1]) + "…"
	}
	return text
}

// atLeast is a number that is exact up to a bound.
func atLeast(name string, n, bound int) Fact {
	if n > bound {
		return Fact{name + "_at_least", bound}
	}
	return Fact{name, n}
}

// upTo writes how many things do something, where more than bound are not counted.
func upTo(n, bound int, thing, does string) string {
	switch {
	case n > bound:
		return fmt.Sprintf("more than %d %ss %s", bound, thing, pluralVerb(does))
	case n == 1:
		return "1 " + thing + " " + does
	}
	return fmt.Sprintf("%d %ss %s", n, thing, pluralVerb(does))
}

// pluralVerb is the form of a verb that goes with several.
func pluralVerb(verb string) string {
	if verb == "is" {
		return "are"
	}
	return strings.TrimSuffix(verb, "s")
}

// named lists jobs with their states.
func named(all []Relative) string {
	texts := make([]string, len(all))
	for i, r := range all {
		texts[i] = fmt.Sprintf("%d (%s, %s)", r.Number, r.ID, r.State)
	}
	return strings.Join(texts, ", ")
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// plural writes a number of things with the verb that follows.
func plural(n int, thing string) string { return count(n, thing) + " " + areOrIs(n) }

func areOrIs(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// length writes a length of time as somebody would say it.
func length(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// since writes how long ago a time was.
func since(now, at time.Time) string { return length(now.Sub(at)) + " ago" }

// clock writes a time, with its date where that is another one.
func clock(now, at time.Time) string {
	layout := "15:04:05 UTC"
	if now.UTC().Format(time.DateOnly) != at.UTC().Format(time.DateOnly) {
		layout = "2006-01-02 " + layout
	}
	return at.UTC().Format(layout)
}
