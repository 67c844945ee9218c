package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var whyNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// explained is what a case of TestExplain expects: the codes in their order, what the sentence is,
// what the other texts contain, and how long after now it may change.
type explained struct {
	codes    string
	sentence string
	next     time.Duration
}

// waitingInput makes facts of a job whose queue is asked for; change makes the case.
func waitingInput(phase Phase, change func(*ExplainInput)) *ExplainInput {
	f := &ExplainInput{Now: whyNow, Pollers: Pollers{Asking: true, LastPolled: whyNow},
		Job: &Job{Seq: 7, ID: ID{JobType: "taskflow", Key: "k"}, Queue: "mail", Phase: phase,
			State: "PENDING"}}
	change(f)
	return f
}

// TestExplain (AD-015, G-AD-08): every code, alone and with others, in the order in which reasons
// hold a job longest.
func TestExplain(t *testing.T) {
	t.Parallel()
	relatives := []Relative{{3, "a", "RUNNING"}, {4, "b", "READY"}}
	rate := Rate{Starts: 5, Period: time.Minute}
	for _, tt := range []struct {
		name   string
		phase  Phase
		change func(*ExplainInput)
		want   explained
	}{
		{"AD-015 running", Leased, func(f *ExplainInput) {
			f.Job.Worker, f.Job.Attempts = "w1", 2
			f.Job.StartedAt, f.Job.LeaseUntil = whyNow.Add(-94*time.Second), whyNow.Add(time.Hour)
		}, explained{"running", "The job runs: worker w1 has had it for 94 s, attempt 2. " +
			"Without a heartbeat its lease ends in 60 min.", time.Hour}},
		{"AD-015 running, its lease has ended", Leased, func(f *ExplainInput) {
			f.Job.Worker, f.Job.Attempts = "w1", 1
			f.Job.StartedAt, f.Job.LeaseUntil = whyNow.Add(-time.Hour), whyNow.Add(-time.Second)
		}, explained{"running", "The job runs: worker w1 has had it for 60 min, attempt 1. Its " +
			"lease has ended without a heartbeat, so it will be taken back.", -time.Second}},
		{"AD-015 not due", Waiting, func(f *ExplainInput) {
			f.Job.DueAt = whyNow.Add(36 * time.Hour)
		}, explained{"not_due",
			"The job is not due before 2026-03-03 00:00:00 UTC, in 36 h.", 36 * time.Hour}},
		{"AD-015 backing off", Waiting, func(f *ExplainInput) {
			f.Job.DueAt, f.Job.Attempts, f.Job.FailedAttempts = whyNow.Add(30*time.Second), 3, 2
		}, explained{"backing_off", "The job waits after attempt 3, of which 2 failed, and is " +
			"tried again at 12:00:30 UTC, in 30 s.", 30 * time.Second}},
		{"AD-015 waits for dependencies", Waiting, func(f *ExplainInput) {
			f.Job.OpenDeps, f.OpenDependencies, f.Dependencies = 12, 12, relatives
		}, explained{"waits_for_dependencies", "The job waits for 12 jobs that it depends on: " +
			"3 (a, RUNNING), 4 (b, READY) and 10 more.", 0}},
		{"AD-015 waits for a dependency that is held back", Waiting, func(f *ExplainInput) {
			f.Job.OpenDeps, f.OpenDependencies, f.Dependencies = 1, 1, relatives[1:]
			f.Chain, f.Root = relatives[1:], waitingInput(Ready, func(f *ExplainInput) {
				f.Job.Seq, f.Paused, f.Pollers = 4, true, Pollers{}
				f.PausedBy, f.PausedAt = "operator:alice", whyNow.Add(-3*time.Minute)
			})
		}, explained{"waits_for_dependencies", "The job waits for 1 job that it depends on: " +
			"4 (b, READY). Job 4: Queue taskflow/mail is paused: no job of it starts until it is " +
			"resumed. It was paused 3 min ago by operator:alice. No worker has ever asked for jobs " +
			"of queue taskflow/mail.", 0}},
		{"AD-015 waits at the start of a chain", Waiting, func(f *ExplainInput) {
			f.Job.OpenDeps, f.OpenDependencies, f.Dependencies = 1, 1, relatives[1:]
			f.Chain = []Relative{relatives[1], {2, "c", "READY"}}
			f.Root = waitingInput(Ready, func(f *ExplainInput) { f.Job.Seq = 2 })
		}, explained{"waits_for_dependencies", "The job waits for 1 job that it depends on: " +
			"4 (b, READY). The chain of dependencies ends at 2 (c, READY): Nothing holds the job " +
			"back: it is the next of queue taskflow/mail and is given to the next worker that asks.",
			0}},
		{"AD-015 waits for children", Waiting, func(f *ExplainInput) {
			f.Job.OpenDeps, f.OpenChildren, f.Job.Children = 2, 2, 5
		}, explained{"waits_for_children", "The job waits for 2 of its 5 parts to end.", 0}},
		{"AD-015 dependency failed", Done, func(f *ExplainInput) {
			f.Unsatisfied, f.Dependencies = true, []Relative{{3, "a", "FAILED"}}
			f.Job.State, f.Job.FinishedAt = "BLOCKED", whyNow.Add(-time.Hour)
		}, explained{"dependency_failed done", "The job was given up because a job that it depends " +
			"on has failed: 3 (a, FAILED).", 0}},
		{"AD-015 queue paused, and behind all the same (G-AD-08)", Ready, func(f *ExplainInput) {
			f.Paused, f.Ahead = true, 17
		}, explained{"queue_paused behind",
			"Queue taskflow/mail is paused: no job of it starts until it is resumed.", 0}},
		{"AD-015 queue limit", Ready, func(f *ExplainInput) { f.QueueLimit, f.QueueRunning = 10, 10 },
			explained{"queue_limit",
				"Queue taskflow/mail runs 10 jobs, and at most 10 at a time.", 0}},
		{"AD-015 queue limit of one", Ready, func(f *ExplainInput) { f.QueueLimit, f.QueueRunning = 1, 1 },
			explained{"queue_limit", "Queue taskflow/mail runs 1 job, and at most 1 at a time.", 0}},
		{"AD-015 contract limit", Ready, func(f *ExplainInput) {
			f.JobTypeLimit, f.JobTypeRunning, f.QueueLimit, f.QueueRunning = 3, 3, 10, 3
		}, explained{"contract_limit",
			"Job type taskflow runs 3 jobs, and at most 3 at a time.", 0}},
		{"AD-015 contract limit of ready jobs", Waiting, func(f *ExplainInput) {
			f.MaxQueueSize, f.QueueSize = 100, 100
		}, explained{"contract_limit", "The job is due, but job type taskflow has 100 ready jobs " +
			"and takes no more than 100.", 0}},
		{"AD-015 rate limited", Ready, func(f *ExplainInput) {
			f.Rate, f.NextStart = rate, whyNow.Add(2500*time.Millisecond)
		}, explained{"rate_limited", "Queue taskflow/mail starts at most 5 jobs in 60 s; the next " +
			"start is allowed at 12:00:02 UTC, in 2 s.", 2500 * time.Millisecond}},
		{"AD-015 a rate that allows starts", Ready, func(f *ExplainInput) { f.Rate = rate },
			explained{"", "Nothing holds the job back: it is the next of queue taskflow/mail and is " +
				"given to the next worker that asks.", 0}},
		{"AD-015 behind one", Ready, func(f *ExplainInput) { f.Ahead = 1 },
			explained{"behind", "In queue taskflow/mail 1 job comes before the job.", 0}},
		{"AD-015 behind, in a queue that goes on", Ready, func(f *ExplainInput) {
			f.Ahead, f.QueueRunning, f.QueueLimit, f.StartedPerMinute = 593, 1, 2, 84
			f.Pollers.Workers = 1
		}, explained{"behind", "In queue taskflow/mail 593 jobs come before the job. 1 job runs now " +
			"of at most 2, and 1 worker is known for it. About 84 start a minute, so it starts in " +
			"about 7 min.", 0}},
		{"AD-015 behind 10,000", Ready, func(f *ExplainInput) { f.Ahead = MaxAhead },
			explained{"behind", "In queue taskflow/mail 10000 jobs come before the job.", 0}},
		{"AD-015 behind more", Ready, func(f *ExplainInput) { f.Ahead = MaxAhead + 1 },
			explained{"behind", "In queue taskflow/mail more than 10000 jobs come before the job.",
				0}},
		{"AD-015 nobody asks", Ready, func(f *ExplainInput) {
			f.Pollers = Pollers{LastPolled: whyNow.Add(-94 * time.Second), Workers: 1}
		}, explained{"nobody_asks", "No worker has asked for jobs of queue taskflow/mail for 94 s. " +
			"1 worker is known for it and may be busy.", 0}},
		{"AD-015 nobody has ever asked", Ready, func(f *ExplainInput) { f.Pollers = Pollers{} },
			explained{"nobody_asks",
				"No worker has ever asked for jobs of queue taskflow/mail.", 0}},
		{"AD-015 node draining", Ready, func(f *ExplainInput) {
			f.Pollers = Pollers{LastPolled: whyNow, DrainedNodes: []string{"n1"},
				DrainedWorkers: []string{"w"}}
		}, explained{"node_draining nobody_asks",
			"The only workers for queue taskflow/mail are on n1, which is drained.", 0}},
		{"AD-015 a drained node where another takes the queue (G-AD-08)", Ready,
			func(f *ExplainInput) { f.Pollers.DrainedNodes, f.Ahead = []string{"n1"}, 2 },
			explained{"behind", "In queue taskflow/mail 2 jobs come before the job.", 0}},
		{"AD-015 message pending", Ready, func(f *ExplainInput) {
			f.MessagePending, f.MessagesAhead = true, 2
		}, explained{"message_pending", "The message that hands the job to a worker has not been " +
			"sent: 2 messages are before it.", 0}},
		{"AD-015 done", Done, func(f *ExplainInput) {
			f.Job.State, f.Job.FinishedAt = "COMPLETED", whyNow.Add(-time.Hour)
		}, explained{"done", "The job is done: it has been COMPLETED since 11:00:00 UTC.", 0}},
		{"AD-015 canceled", Done, func(f *ExplainInput) {
			f.Canceled, f.Job.State, f.Job.FinishedAt = true, "FAILED", whyNow.Add(-time.Hour)
		}, explained{"done", "The job was canceled: it has been FAILED since 11:00:00 UTC.", 0}},
		{"AD-015 canceled, with a dead letter", Done, func(f *ExplainInput) {
			f.DeadLetter = &DeadLetter{ID: 12, CreatedAt: whyNow.Add(-3 * time.Hour),
				Cause: Canceled, Job: Job{Attempts: 1}}
		}, explained{"dead", "The job was canceled 3 h ago after 1 attempt, and stands in the dead " +
			"letters as 12.", 0}},
		{"AD-015 dead", Done, func(f *ExplainInput) {
			f.DeadLetter = &DeadLetter{ID: 12, Job: Job{Attempts: 5},
				CreatedAt: whyNow.Add(-3 * time.Hour)}
		}, explained{"dead", "The job was given up 3 h ago after 5 attempts, and stands in the dead " +
			"letters as 12.", 0}},
		{"AD-015 dead, with an error", Done, func(f *ExplainInput) {
			f.DeadLetter = &DeadLetter{ID: 12, CreatedAt: whyNow.Add(-3 * time.Hour),
				Job: Job{Attempts: 5,
					Failure: []byte(`{"code":"HTTP_500","message":"the answer was 500\nmore"}`)}}
		}, explained{"dead", "The job was given up 3 h ago after 5 attempts, and stands in the dead " +
			"letters as 12. Its error is HTTP_500: the answer was 500.", 0}},
		{"AD-051 given up and replayed", Done, func(f *ExplainInput) {
			f.DeadLetter = &DeadLetter{ID: 12, CreatedAt: whyNow.Add(-3 * time.Hour),
				Job: Job{Attempts: 5}, ReplayedAt: whyNow.Add(-time.Minute), ReplayedAs: 45}
		}, explained{"done", "The job was given up 3 h ago after 5 attempts, and its dead letter 12 " +
			"was replayed 60 s ago as job 45.", 0}},
		{"AD-005 dead, with an error that is not shown", Done, func(f *ExplainInput) {
			f.HidesFailure = true
			f.DeadLetter = &DeadLetter{ID: 12, CreatedAt: whyNow.Add(-3 * time.Hour),
				Job: Job{Attempts: 5, Failure: []byte(`{"code":"HTTP_500","message":"hidden"}`)}}
		}, explained{"dead", "The job was given up 3 h ago after 5 attempts, and stands in the dead " +
			"letters as 12.", 0}},
		{"AD-015 all that can hold a waiting job", Waiting, func(f *ExplainInput) {
			f.Paused, f.Pollers = true, Pollers{}
			f.Job.OpenDeps, f.Job.Children, f.Job.DueAt = 2, 1, whyNow.Add(time.Minute)
			f.OpenDependencies, f.Dependencies, f.OpenChildren = 1, relatives[:1], 1
			f.QueueLimit, f.QueueRunning = 1, 1
		}, explained{"waits_for_dependencies waits_for_children queue_paused nobody_asks not_due",
			"The job waits for 1 job that it depends on: 3 (a, RUNNING).", time.Minute}},
		{"AD-015 all that can hold a ready job", Ready, func(f *ExplainInput) {
			f.Paused, f.Pollers, f.Rate = true, Pollers{}, rate
			f.NextStart = whyNow.Add(time.Second)
			f.QueueLimit, f.QueueRunning, f.JobTypeLimit, f.JobTypeRunning = 1, 1, 1, 1
			f.Ahead, f.MessagePending = 1, true
		}, explained{"queue_paused nobody_asks message_pending rate_limited contract_limit " +
			"queue_limit behind",
			"Queue taskflow/mail is paused: no job of it starts until it is resumed.",
			time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantExplained(t, waitingInput(tt.phase, tt.change), tt.want)
		})
	}
}

// wantExplained fails unless the facts are explained as is wanted.
func wantExplained(t *testing.T, f *ExplainInput, want explained) {
	t.Helper()
	why := Explain(f)
	got := explained{sentence: why.Sentence}
	var codes []string
	for _, r := range why.Reasons {
		codes = append(codes, string(r.Code))
		if !strings.HasSuffix(r.Text, ".") || strings.Contains(r.Text, "%!") {
			t.Errorf("%s says %q", r.Code, r.Text)
		}
	}
	got.codes = strings.Join(codes, " ")
	if !why.Next.IsZero() {
		got.next = why.Next.Sub(whyNow)
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestExplainFailedRun (AD-015, AD-005): a run of which the worker has reported a failure waits for
// the end of its lease, and is explained as one that has failed.
func TestExplainFailedRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		phase  Phase
		change func(*ExplainInput)
		want   explained
	}{
		{"AD-015 a run that has failed, before its lease has ended", Leased, func(f *ExplainInput) {
			f.Job.Worker, f.Job.Attempts, f.Job.MaxAttempts = "w1", 1, 2
			f.Job.LeaseUntil = whyNow.Add(12 * time.Second)
			f.Job.Failure = AttemptFailure{Error: "no mailbox.\nmore", Attempt: 1}.Encode()
		}, explained{"backing_off", "Attempt 1 has failed on worker w1: no mailbox. The job is tried " +
			"again when its lease ends in 12 s.", 12 * time.Second}},
		{"AD-015 the last run has failed", Leased, func(f *ExplainInput) {
			f.Job.Worker, f.Job.Attempts, f.Job.MaxAttempts = "w1", 2, 2
			f.Job.FailedAttempts, f.Job.LeaseUntil = 1, whyNow.Add(-time.Second)
			f.Job.Failure = AttemptFailure{Error: "no mailbox", Attempt: 2}.Encode()
		}, explained{"backing_off", "Attempt 2 has failed on worker w1: no mailbox. No attempt is " +
			"left: the job is given up now that its lease has ended.", -time.Second}},
		{"AD-005 a run has failed, and the error is not shown", Leased, func(f *ExplainInput) {
			f.Job.Worker, f.Job.Attempts, f.HidesFailure = "w1", 1, true
			f.Job.LeaseUntil = whyNow.Add(12 * time.Second)
			f.Job.Failure = AttemptFailure{Error: "hidden", Attempt: 1}.Encode()
		}, explained{"backing_off", "Attempt 1 has failed on worker w1. The job is tried again when " +
			"its lease ends in 12 s.", 12 * time.Second}},
		{"AD-015 dead, with the error of a run whose lease ended", Done, func(f *ExplainInput) {
			f.DeadLetter = &DeadLetter{ID: 12, CreatedAt: whyNow.Add(-3 * time.Hour),
				Cause: ExpiredForGood, Job: Job{Attempts: 2,
					Failure: AttemptFailure{Error: "no mailbox", Attempt: 2}.Encode()}}
		}, explained{"dead", "The job was given up 3 h ago after 2 attempts, and stands in the dead " +
			"letters as 12. Its error: no mailbox.", 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantExplained(t, waitingInput(tt.phase, tt.change), tt.want)
		})
	}
}

// TestExplainFacts (AD-015): facts are exact up to a bound, and say so beyond it.
func TestExplainFacts(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[int]Fact{9: {"ahead", 9}, MaxAhead: {"ahead", MaxAhead},
		MaxAhead + 1: {"ahead_at_least", MaxAhead}} {
		why := Explain(waitingInput(Ready, func(f *ExplainInput) { f.Ahead = ahead }))
		if got := why.Reasons[0].Facts; !slices.Contains(got, want) {
			t.Errorf("%d ahead: %v", ahead, got)
		}
	}
	why := Explain(waitingInput(Ready, func(f *ExplainInput) {
		f.Ahead, f.StartedPerMinute, f.Pollers = 5, 84, Pollers{}
	}))
	if text := why.Reasons[1].Text; strings.Contains(text, "minute") {
		t.Errorf("a queue without workers goes on: %s", text)
	}
	why = Explain(waitingInput(Done, func(f *ExplainInput) {
		f.DeadLetter = &DeadLetter{Cause: ExpiredForGood, Job: Job{Attempts: 1,
			Failure: AttemptFailure{Error: "no", Attempt: 1}.Encode()}}
	}))
	if got := why.Reasons[0].Facts; !slices.Contains(got, Fact{"cause", "failed_for_good"}) {
		t.Errorf("the worker reported why it failed: %v", got)
	}
	why = Explain(waitingInput(Ready, func(f *ExplainInput) {
		f.Pollers = Pollers{LastPolled: whyNow.Add(-time.Hour), DrainedWorkers: []string{"w"}}
	}))
	if got := fmt.Sprint(why.Reasons[0].Facts); !strings.Contains(got, "{drained_workers [w]}") ||
		!strings.Contains(got, "{since 2026-03-01 11:00:00") {
		t.Errorf("got %s", got)
	}
}
