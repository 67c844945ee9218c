package job

import (
	"testing"
	"time"
)

// TestTimelineOfReportedFailure (AD-014): an attempt of which its worker has reported a failure has
// failed: it neither runs until its lease ends nor was its worker lost.
func TestTimelineOfReportedFailure(t *testing.T) {
	t.Parallel()
	failed := Job{Phase: Leased, Attempts: 2, Worker: "w", StartedAt: whyNow,
		UpdatedAt: whyNow.Add(time.Second), LeaseUntil: whyNow.Add(time.Minute),
		Failure: AttemptFailure{Error: "no mailbox", Attempt: 2}.Encode()}
	queued, dead := failed, failed
	queued.Phase, dead.Phase = Ready, Done
	for name, f := range map[string]*TimelineInput{
		"the lease goes on": {Job: &failed},
		"it is tried again": {Job: &queued},
		"it was given up": {Job: &dead, DeadLetters: []DeadLetter{{Job: dead,
			Cause: ExpiredForGood, CreatedAt: whyNow.Add(time.Minute)}}},
	} {
		all := f.attempts()
		if len(all) != 1 || all[0].Outcome != string(Failed) || all[0].Error != "no mailbox" ||
			all[0].Text != "attempt 2 by w failed; earlier attempts are not kept" {
			t.Errorf("%s: got %+v", name, all)
		}
	}
}
