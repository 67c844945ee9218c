package engine

import "slices"

// Limits bound the jobs that are leased at a time: one for all queues of a job type
// (JobType.MaxRunning), one for a queue (job.QueueSettings). They are exact over all nodes, as
// every transaction that claims under a limit locks its name first and counts afterwards. The rate
// of a queue, which bounds its starts, is under the same lock; see rate_window.go.

// lockLimits locks the names of all limits that a group of claims may come under. They are locked
// before anything else and in one order, so that two such transactions cannot deadlock.
func (u *unit) lockLimits(calls []*claimCall) error {
	var keys []queueKey
	for _, c := range calls {
		keys = append(keys, u.limitKeys(&c.req)...)
	}
	return u.lockNames(keys)
}

// limitKeys returns what a claim may come under a limit of: its job type and its queues, or those
// that have settings where it is for all.
func (u *unit) limitKeys(req *ClaimRequest) []queueKey {
	keys := []queueKey{{req.JobType, ""}}
	for _, q := range req.Queues {
		keys = append(keys, queueKey{req.JobType, q})
	}
	if len(req.Queues) > 0 {
		return keys
	}
	for key := range *u.settings {
		if key.jobType == req.JobType {
			keys = append(keys, key)
		}
	}
	return keys
}

// isLimited reports whether runs or starts of a queue, or of a job type, are limited.
func (u *unit) isLimited(key queueKey) bool {
	return u.maxRunning(key) > 0 || !u.settings.of(key).Rate.IsZero()
}

// lockNames locks the names of those of the limits that are set, and reads the starts under them.
func (u *unit) lockNames(keys []queueKey) error {
	var names []string
	for _, key := range keys {
		if u.isLimited(key) {
			names = append(names, "runs:"+key.jobType+":"+key.queue)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := u.tx.LockName(name); err != nil {
			return err
		}
	}
	var err error
	u.rateWindows, err = readRateWindows(u.tx, u.settings, keys)
	return err
}

// maxRunning returns how many jobs of a queue, or with no name of the whole job type, may be
// leased at a time; 0 is no limit.
func (u *unit) maxRunning(key queueKey) int {
	if key.queue == "" {
		return u.e.jobTypes[key.jobType].MaxRunning
	}
	return u.settings.of(key).MaxRunning
}

// availableRuns returns how many of n runs of a queue its limits leave. Their names are locked.
func (u *unit) availableRuns(key queueKey, n int) (int, error) {
	n, err := u.availableSlots(queueKey{key.jobType, ""}, n)
	if err != nil || n == 0 {
		return 0, err
	}
	return u.availableSlots(key, n)
}

// availableSlots returns how many of n runs one limit leaves. Its name is locked.
func (u *unit) availableSlots(key queueKey, n int) (int, error) {
	limit := u.maxRunning(key)
	if limit == 0 {
		return n, nil
	}
	counts, err := u.currentCounts(key.jobType)
	if err != nil {
		return 0, err
	}
	free := int64(limit)
	for _, c := range counts {
		if key.queue == "" || c.Queue == key.queue {
			free -= c.Leased
		}
	}
	return int(max(0, min(int64(n), free))), nil
}
