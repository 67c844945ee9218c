package taskflow

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Job is what the rules of the document look at.
type Job struct {
	ID           string
	Status       job.State
	Priority     int
	CreatedAt    time.Time
	Dependencies []string
	AttemptCount int
	Policy       Policy
}

// Policy is a retry policy.
type Policy struct {
	MaxAttempts int
	Strategy    job.Strategy
	BaseDelay   int // seconds
	MaxDelay    int // seconds
}

// defaultPolicy is what a policy has where nothing else is said (TF-014 to TF-017).
var defaultPolicy = Policy{MaxAttempts: 3, Strategy: job.Exponential, BaseDelay: 10, MaxDelay: 300}

// CycleDetectionResult is has_cycle and cycle_path (TF-037).
type CycleDetectionResult = job.CycleDetectionResult[string]

// DetectCycle says whether a job with these dependencies closes a cycle with those
// that exist (2.1.1). An id outside of existing ends its branch (TF-039).
func DetectCycle(newJobID string, newJobDependencies []string,
	existingJobs map[string][]string) CycleDetectionResult {
	return job.DetectCycle(newJobID, newJobDependencies, existingJobs)
}

// outcomes is what each status means to those that wait for it.
var outcomes = map[job.State]job.Outcome{Completed: job.OutcomeSucceeded, Failed: job.OutcomeFailed,
	Blocked: job.OutcomeFailed}

// CheckDependencies says what the statuses of a job's dependencies mean for it
// (2.1.2). One of unknown status is waited for.
func CheckDependencies(j Job, dependencyStatuses map[string]job.State) job.DependencyStatus {
	each := make([]job.Outcome, len(j.Dependencies))
	for i, id := range j.Dependencies {
		each[i] = outcomes[dependencyStatuses[id]]
	}
	return job.EvaluateDependencies(each)
}

// CompareJobs is the order of execution (2.2.1): higher priority, then earlier
// created, then lower id as text. Negative means a first.
func CompareJobs(a, b Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.CreatedAt.Compare(b.CreatedAt),
		strings.Compare(a.ID, b.ID))
}

// OrderJobs returns the jobs in the order of execution; what it was given stays as
// it is.
func OrderJobs(ready []Job) []Job { return slices.SortedFunc(slices.Values(ready), CompareJobs) }

// SelectNext returns the jobs to start: the first ones, as many as there are free
// slots (2.2.2).
func SelectNext(ready []Job, runningCount, maxConcurrent int) []Job {
	free := maxConcurrent - runningCount
	if free <= 0 {
		return nil
	}
	return OrderJobs(ready)[:min(free, len(ready))]
}

// RetryDelay is the delay in seconds after an attempt has failed; attempts count
// from 1 (2.3.1).
func RetryDelay(p Policy, attempt int) int {
	b := job.Backoff{Strategy: p.Strategy, Base: time.Duration(p.BaseDelay) * time.Second,
		Max: time.Duration(p.MaxDelay) * time.Second}
	return int(b.Delay(attempt) / time.Second)
}

// ShouldRetry says whether a job that failed is tried again (2.3.2); the failure is
// counted already (G-TF-01).
func ShouldRetry(j Job) bool { return j.AttemptCount < j.Policy.MaxAttempts }

// ValidTransition says whether a pair of statuses is in the table of 2.4.1. The
// engine changes states by the same table and no other (TF-030).
func ValidTransition(current, target job.State) bool {
	if current == target || !machine.Has(current) || !machine.Has(target) {
		return false
	}
	return slices.ContainsFunc(job.Causes(), func(on job.Cause) bool {
		mv, ok := machine.Next(current, on)
		return ok && mv.To == target
	})
}

// PropagateFailure returns the ids of the jobs to block because a job failed: its
// PENDING dependents and, through them, theirs (2.5.1).
func PropagateFailure(failedJobID string, allJobs []Job) map[string]bool {
	dependents := dependentsByID(allJobs)
	blocked := map[string]bool{}
	for pending := []string{failedJobID}; len(pending) > 0; {
		id := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for _, j := range dependents[id] {
			if j.Status == Pending && !blocked[j.ID] {
				blocked[j.ID] = true
				pending = append(pending, j.ID)
			}
		}
	}
	return blocked
}

// PropagateCompletion returns the ids of the PENDING jobs that become READY because
// a job completed: those that wait for it and for nothing else any more (2.5.2).
func PropagateCompletion(completedJobID string, allJobs []Job) map[string]bool {
	known := make(map[string]job.State, len(allJobs))
	for _, j := range allJobs {
		known[j.ID] = j.Status
	}
	known[completedJobID] = Completed
	released := map[string]bool{}
	for _, j := range dependentsByID(allJobs)[completedJobID] {
		if j.Status == Pending && CheckDependencies(j, known) == job.DependenciesSatisfied {
			released[j.ID] = true
		}
	}
	return released
}

func dependentsByID(all []Job) map[string][]Job {
	by := map[string][]Job{}
	for _, j := range all {
		for _, id := range j.Dependencies {
			by[id] = append(by[id], j)
		}
	}
	return by
}
