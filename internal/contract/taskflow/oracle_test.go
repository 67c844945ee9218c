package taskflow

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// This file is the oracle of the tests: the rules of the document as functions with its inputs and
// outputs (chapter 2). The engine, which applies the same rules to rows of a store, is compared
// with them.

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

// CycleDetectionResult is has_cycle and cycle_path (TF-037).
type CycleDetectionResult struct {
	HasCycle  bool
	CyclePath []string
}

// DetectCycle reports whether a job with these dependencies closes a cycle with the jobs that exist
// (2.1.1). An id outside of existing ends its branch (TF-039). The jobs are numbered as they are
// met from the new job, so the search is the one that the engine makes.
func DetectCycle(newJobID string, newJobDependencies []string,
	existingJobs map[string][]string) CycleDetectionResult {
	ids, numbers := []string{newJobID}, map[string]int{newJobID: 0}
	var deps [][]int
	for i := 0; i < len(ids); i++ {
		dependencies := existingJobs[ids[i]]
		if i == 0 {
			dependencies = newJobDependencies
		}
		deps = append(deps, nil)
		for _, id := range dependencies {
			if _, known := numbers[id]; !known {
				numbers[id] = len(ids)
				ids = append(ids, id)
			}
			deps[i] = append(deps[i], numbers[id])
		}
	}
	var found CycleDetectionResult
	for _, i := range job.FindIndexCycle(deps) {
		found.HasCycle = true
		found.CyclePath = append(found.CyclePath, ids[i])
	}
	return found
}

// Outcome is what a dependent needs to know about a job it depends on. The zero value is the
// careful one.
type Outcome uint8

const (
	OutcomeOpen      Outcome = iota // not done: the dependent waits
	OutcomeSucceeded                // done, with success
	// done, and will never succeed: failed for good, blocked or canceled
	OutcomeFailed
)

// DependencyStatus is what the dependencies of a job together mean for it.
type DependencyStatus uint8

const (
	DependenciesWaiting DependencyStatus = iota
	DependenciesSatisfied
	DependenciesBlocked
)

// String returns the word of TF-042.
func (s DependencyStatus) String() string {
	switch s {
	case DependenciesSatisfied:
		return "SATISFIED"
	case DependenciesBlocked:
		return "BLOCKED"
	default:
		return "WAITING"
	}
}

// EvaluateDependencies applies the rules in their order: none at all is SATISFIED (TF-042), any
// failed one is BLOCKED even while others are open (TF-043), any open one is WAITING (TF-044), all
// succeeded is SATISFIED (TF-045).
func EvaluateDependencies(outcomes []Outcome) DependencyStatus {
	if slices.Contains(outcomes, OutcomeFailed) {
		return DependenciesBlocked
	}
	for _, o := range outcomes {
		if o != OutcomeSucceeded {
			return DependenciesWaiting
		}
	}
	return DependenciesSatisfied
}

// outcomes is what each status means to those that wait for it.
var outcomes = map[job.State]Outcome{Completed: OutcomeSucceeded, Failed: OutcomeFailed,
	Blocked: OutcomeFailed}

// CheckDependencies says what the statuses of a job's dependencies mean for it (2.1.2). One of
// unknown status is waited for.
func CheckDependencies(j Job, dependencyStatuses map[string]job.State) DependencyStatus {
	each := make([]Outcome, len(j.Dependencies))
	for i, id := range j.Dependencies {
		each[i] = outcomes[dependencyStatuses[id]]
	}
	return EvaluateDependencies(each)
}

// CompareJobs is the order of execution (2.2.1): higher priority, then earlier created, then lower
// id as text. Negative means a first.
func CompareJobs(a, b Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.CreatedAt.Compare(b.CreatedAt),
		strings.Compare(a.ID, b.ID))
}

// OrderJobs returns the jobs in the order of execution; what it was given stays as it is.
func OrderJobs(ready []Job) []Job { return slices.SortedFunc(slices.Values(ready), CompareJobs) }

// SelectNext returns the jobs to start: the first ones, as many as there are free slots (2.2.2).
func SelectNext(ready []Job, runningCount, maxConcurrent int) []Job {
	free := maxConcurrent - runningCount
	if free <= 0 {
		return nil
	}
	return OrderJobs(ready)[:min(free, len(ready))]
}

// RetryDelay is the delay in seconds after an attempt has failed; attempts count from 1 (2.3.1).
func RetryDelay(p Policy, attempt int) int { return int(p.retry().Delay(attempt) / time.Second) }

// ShouldRetry reports whether a job that failed is tried again (2.3.2); the failure is counted
// already (G-TF-01).
func ShouldRetry(j Job) bool { return j.AttemptCount < j.Policy.MaxAttempts }

// ValidTransition reports whether a pair of statuses is in the table of 2.4.1. The engine changes
// states by the same table and no other (TF-030).
func ValidTransition(current, target job.State) bool {
	if current == target || !machine.Has(current) || !machine.Has(target) {
		return false
	}
	return slices.ContainsFunc(job.Causes(), func(on job.Cause) bool {
		tr, ok := machine.Next(current, on)
		return ok && tr.To == target
	})
}

// PropagateFailure returns the ids of the jobs to block because a job failed: its PENDING
// dependents and, through them, theirs (2.5.1).
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

// PropagateCompletion returns the ids of the PENDING jobs that become READY because a job
// completed: those that wait for it and for nothing else any more (2.5.2).
func PropagateCompletion(completedJobID string, allJobs []Job) map[string]bool {
	known := make(map[string]job.State, len(allJobs))
	for _, j := range allJobs {
		known[j.ID] = j.Status
	}
	known[completedJobID] = Completed
	released := map[string]bool{}
	for _, j := range dependentsByID(allJobs)[completedJobID] {
		if j.Status == Pending && CheckDependencies(j, known) == DependenciesSatisfied {
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
