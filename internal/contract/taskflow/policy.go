package taskflow

import (
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Policy is a retry policy (1.2).
//
// The engine stores max_attempts as the job's limit of failed attempts. The other three members
// are stored as words in the job's kind, such as "EXPONENTIAL 10 300": the engine asks for the
// delay of a job whose bodies it has not loaded, and the kind is at hand without them.
type Policy struct {
	MaxAttempts int
	Strategy    job.Strategy
	BaseDelay   int // seconds
	MaxDelay    int // seconds
}

// defaultPolicy fills in the members that a request leaves out (TF-014 to TF-017).
var defaultPolicy = Policy{MaxAttempts: 3, Strategy: job.Exponential, BaseDelay: 10, MaxDelay: 300}

// delay returns the time from the failure of an attempt to the next one; attempts count from 1
// (2.3.1).
func (p *Policy) delay(attempt int) time.Duration {
	backoff := job.Backoff{
		Strategy: p.Strategy,
		Base:     time.Duration(p.BaseDelay) * time.Second,
		Max:      time.Duration(p.MaxDelay) * time.Second,
	}
	return backoff.Delay(attempt).Truncate(time.Second)
}

// retryDelay returns how long a job waits after the failure just counted (TF-065).
func retryDelay(j *job.Job) time.Duration {
	p := decodePolicy(j)
	return p.delay(j.FailedAttempts)
}

// readPolicy fills in the defaults and validates the policy as a whole (TF-020).
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

func (p *Policy) append(o *strictjson.Object) {
	o.Int("max_attempts", int64(p.MaxAttempts))
	o.Text("backoff_strategy", p.Strategy.String())
	o.Int("base_delay_seconds", int64(p.BaseDelay))
	o.Int("max_delay_seconds", int64(p.MaxDelay))
}

// kind encodes the members that are stored in a job's kind.
func (p *Policy) kind() string {
	return p.Strategy.String() + " " + strconv.Itoa(p.BaseDelay) + " " + strconv.Itoa(p.MaxDelay)
}

// decodePolicy reads the policy of a job. A kind that cannot be read, such as that of a job which
// another program has stored, gives the default delays.
func decodePolicy(j *job.Job) Policy {
	p := defaultPolicy
	p.MaxAttempts = j.MaxAttempts
	words := strings.Fields(j.Kind)
	if len(words) != 3 {
		return p
	}
	strategy, known := job.ParseStrategy(words[0])
	if !known {
		return p
	}
	baseDelay, err := strconv.Atoi(words[1])
	if err != nil {
		return p
	}
	maxDelay, err := strconv.Atoi(words[2])
	if err != nil {
		return p
	}
	p.Strategy, p.BaseDelay, p.MaxDelay = strategy, baseDelay, maxDelay
	return p
}
