package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Activity is what committed transactions have done for the jobs of a queue. Activities of several
// nodes and times add up.
type Activity struct {
	Submitted uint64 // jobs
	Started   uint64 // attempts that were claimed
	Succeeded uint64 // attempts
	Failed    uint64 // attempts, with those whose lease ended
	// Wait is how long jobs were ready before each of their attempts. Run is how long attempts
	// took, of those whose ends were reported.
	Wait Durations
	Run  Durations
}

// Add adds what others have counted.
func (a *Activity) Add(b *Activity) {
	a.Submitted += b.Submitted
	a.Started += b.Started
	a.Succeeded += b.Succeeded
	a.Failed += b.Failed
	a.Wait.Add(&b.Wait)
	a.Run.Add(&b.Run)
}

// QueueActivity is the activity of one queue.
type QueueActivity struct {
	JobType string
	Queue   string // empty: of the queues that are beyond the bound
	Activity
}

// maxActiveQueues bounds the queues of a job type that are counted apart until the next call of
// TakeActivity: users name queues.
const maxActiveQueues = 200

// activities are what the transactions of this node have done since it was taken last.
type activities struct {
	mu     sync.Mutex
	all    map[queueKey]*Activity
	queues map[string]int // how many all has, by job type
}

// queueActivity is what a transaction has done for a queue. Most transactions are about one, so
// they have a list, whose last entry is looked at first.
type queueActivity struct {
	key queueKey
	Activity
}

// note adds what a transaction has done.
func (s *activities) note(done []queueActivity) {
	if len(done) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range done {
		key, a := done[i].key, &done[i].Activity
		if s.all[key] == nil && s.queues[key.jobType] >= maxActiveQueues {
			key.queue = ""
		}
		if known := s.all[key]; known != nil {
			known.Add(a)
			continue
		}
		put(&s.all, key, a)
		put(&s.queues, key.jobType, s.queues[key.jobType]+1)
	}
}

// TakeActivity returns what the transactions of this node have done since the last call of it, by
// queue in no order.
func (e *Engine) TakeActivity() []QueueActivity {
	s := &e.activities
	s.mu.Lock()
	taken := s.all
	s.all, s.queues = nil, nil
	s.mu.Unlock()
	all := make([]QueueActivity, 0, len(taken))
	for key, a := range taken {
		all = append(all, QueueActivity{key.jobType, key.queue, *a})
	}
	return all
}

// activityOf returns what the transaction has done for the queue of a job.
func (u *unit) activityOf(j *job.Job) *Activity {
	key := queueKeyOf(j)
	if len(u.after.activity) >= maxActiveQueues {
		key.queue = "" // as note would make it
	}
	for i := range slices.Backward(u.after.activity) {
		if u.after.activity[i].key == key {
			return &u.after.activity[i].Activity
		}
	}
	u.after.activity = append(u.after.activity, queueActivity{key: key})
	return &u.after.activity[len(u.after.activity)-1].Activity
}

// countActivity counts a transition of a job that was stored, out of a phase in which it was since
// then.
func (u *unit) countActivity(j *job.Job, on job.Cause, was job.Phase, since time.Time) {
	if on == job.Claimed {
		a := u.activityOf(j)
		a.Started++
		a.Wait.Observe(j.UpdatedAt.Sub(later(since, j.DueAt)))
		return
	}
	if was != job.Leased {
		return
	}
	switch on {
	case job.Succeeded:
		a := u.activityOf(j)
		a.Succeeded++
		a.Run.Observe(j.UpdatedAt.Sub(j.StartedAt))
	case job.Failed, job.FailedForGood:
		a := u.activityOf(j)
		a.Failed++
		a.Run.Observe(j.UpdatedAt.Sub(j.StartedAt))
	case job.Expired, job.ExpiredForGood:
		u.activityOf(j).Failed++
	}
}
