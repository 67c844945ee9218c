package taskflow

import (
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Policy is a retry policy (1.2).
//
// A job has it as MaxAttempts and Retry, by which the engine counts and delays its attempts
// (TF-065).
type Policy struct {
	MaxAttempts int
	Strategy    job.Strategy
	BaseDelay   int // seconds
	MaxDelay    int // seconds
}

// defaultPolicy fills in the members that a request leaves out (TF-014 to TF-017).
var defaultPolicy = Policy{MaxAttempts: 3, Strategy: job.Exponential, BaseDelay: 10, MaxDelay: 300}

// retry returns the policy in the engine's terms. The delays have no jitter, and the one of FIXED
// is never above Max (TF-064, G-TF-12).
func (p *Policy) retry() job.RetryPolicy {
	return job.RetryPolicy{
		Strategy: p.Strategy,
		Base:     time.Duration(p.BaseDelay) * time.Second,
		Max:      time.Duration(p.MaxDelay) * time.Second,
	}
}

// policyOf returns the policy of a job.
func policyOf(j *job.Job) Policy {
	return Policy{
		MaxAttempts: j.MaxAttempts,
		Strategy:    j.Retry.Strategy,
		BaseDelay:   int(j.Retry.Base / time.Second),
		MaxDelay:    int(j.Retry.Max / time.Second),
	}
}

// readPolicy fills in the defaults and validates the policy as a whole (TF-020). An update too
// replaces the whole policy: what it leaves out becomes the default and does not keep its value
// (G-TF-06).
func readPolicy(raw []byte) (Policy, error) {
	p := defaultPolicy
	if k := strictjson.KindOf(raw); k != strictjson.KindObject {
		return p, invalid("retry_policy must be an object and is of type %s", k)
	}
	sent := map[string][]byte{}
	for name, value := range strictjson.Members(raw) {
		if err := policyNames.check(name); err != nil {
			return p, err
		}
		sent[string(name)] = value
	}
	if err := p.readNumbers(sent); err != nil {
		return p, err
	}
	if value := sent["backoff_strategy"]; value != nil {
		word, err := readText("retry_policy.backoff_strategy", value)
		if err != nil {
			return p, err
		}
		known := false
		if p.Strategy, known = job.ParseStrategy(word); !known {
			return p, invalid("retry_policy.backoff_strategy must be FIXED, LINEAR or EXPONENTIAL")
		}
	}
	if p.MaxDelay < p.BaseDelay { // TF-018
		return p, invalid("retry_policy.max_delay_seconds is %d, which is below "+
			"base_delay_seconds, %d", p.MaxDelay, p.BaseDelay)
	}
	return p, nil
}

// readNumbers sets the numbers that were sent and leaves the others.
func (p *Policy) readNumbers(sent map[string][]byte) error {
	for _, member := range []struct {
		name     string
		maxValue int
		target   *int
	}{
		{"max_attempts", maxAttempts, &p.MaxAttempts},
		{"base_delay_seconds", maxBaseDelay, &p.BaseDelay},
		{"max_delay_seconds", maxMaxDelay, &p.MaxDelay},
	} {
		value := sent[member.name]
		if value == nil {
			continue
		}
		n, err := readInt("retry_policy."+member.name, value, 1, member.maxValue)
		if err != nil {
			return err
		}
		*member.target = n
	}
	return nil
}

// append writes all members of the policy, also those that are defaults (TF-009).
func (p *Policy) append(o *strictjson.Object) {
	o.Int("max_attempts", int64(p.MaxAttempts))
	o.Text("backoff_strategy", p.Strategy.String())
	o.Int("base_delay_seconds", int64(p.BaseDelay))
	o.Int("max_delay_seconds", int64(p.MaxDelay))
}
