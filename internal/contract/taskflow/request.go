package taskflow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// Limits of the document (1.1, 1.2).
const (
	maxName         = 255 // characters
	maxQueue        = 64
	maxPayload      = 65536 // bytes
	maxDependencies = 50
	maxPriority     = 10
	maxAttempts     = 10
	maxBaseDelay    = 300
	maxMaxDelay     = 3600

	defaultPriority = 5
	defaultPayload  = "{}"
)

// readBody reads the body of a request, whatever is in it, up to its route's limit (G-TF-32).
func readBody(c *httpapi.Call) ([]byte, error) {
	if len(c.Request.Header["Content-Type"]) > 0 && !c.HasJSONContentType() {
		return nil, invalid("the body's Content-Type must be application/json")
	}
	return c.Body()
}

// checkObject refuses what is no JSON object.
func checkObject(text []byte) error {
	if len(strictjson.Trim(text)) == 0 {
		return invalid("the body is missing")
	}
	if err := strictjson.Check(text); err != nil {
		return invalid("the body is not JSON: %v", err)
	}
	if k := strictjson.KindOf(text); k != strictjson.KindObject {
		return invalid("the body must be an object and is of type %s", k)
	}
	return nil
}

// jobSpec is what a caller says of a job; given tells which members are there.
type jobSpec struct {
	name         string
	queue        string
	payload      []byte
	priority     int
	dependencies []string
	policy       Policy

	sent map[string][]byte // as sent; of a member that is there twice the last counts
}

func (s *jobSpec) has(name string) bool { return s.sent[name] != nil }

// memberReaders read the members of a job in the order of the document; each refuses
// what breaks a rule of 3.1.
var memberReaders = []struct {
	name string
	read func(s *jobSpec, raw []byte) error
}{
	{"name", func(s *jobSpec, raw []byte) (err error) {
		s.name, err = readName("name", raw, maxName)
		return err
	}},
	{"queue", func(s *jobSpec, raw []byte) (err error) {
		s.queue, err = readQueue(raw)
		return err
	}},
	{"payload", (*jobSpec).readPayload},
	{"priority", func(s *jobSpec, raw []byte) (err error) {
		s.priority, err = readInt("priority", raw, 1, maxPriority)
		return err
	}},
	{"dependencies", func(s *jobSpec, raw []byte) (err error) {
		s.dependencies, err = readDependencies(raw)
		return err
	}},
	{"retry_policy", func(s *jobSpec, raw []byte) (err error) {
		s.policy, err = readPolicy(raw)
		return err
	}},
}

// readSpec reads a checked object. It refuses what is misnamed and ignores what else
// it does not know (G-TF-15).
func readSpec(object []byte, known *names) (jobSpec, error) {
	s := jobSpec{sent: map[string][]byte{}}
	for name, raw := range strictjson.Members(object) {
		if err := known.check(name); err != nil {
			return s, err
		}
		s.sent[string(name)] = raw
	}
	for _, m := range memberReaders {
		raw := s.sent[m.name]
		if raw == nil {
			continue
		}
		if err := m.read(&s, raw); err != nil {
			return s, err
		}
	}
	return s, nil
}

// complete demands what a new job needs and fills in the rest (G-TF-14).
func (s *jobSpec) complete() error {
	for _, name := range []string{"name", "queue"} {
		if !s.has(name) {
			return invalid("%s is missing", name)
		}
	}
	if !s.has("payload") {
		s.payload = []byte(defaultPayload)
	}
	if !s.has("priority") {
		s.priority = defaultPriority
	}
	if !s.has("retry_policy") {
		s.policy = defaultPolicy
	}
	return nil
}

func readText(name string, raw []byte) (string, error) {
	text, err := strictjson.String(raw)
	switch {
	case errors.Is(err, strictjson.ErrKind):
		return "", invalid("%s must be a string and is of type %s", name, strictjson.KindOf(raw))
	case err != nil: // no store keeps it as it was sent
		return "", invalid("%s: %v", name, err)
	}
	return text, nil
}

func readName(name string, raw []byte, limit int) (string, error) {
	text, err := readText(name, raw)
	if n := utf8.RuneCountInString(text); err == nil && (n < 1 || n > limit) {
		err = invalid("%s must have 1 to %d characters and has %d", name, limit, n)
	}
	return text, err
}

func readQueue(raw []byte) (string, error) {
	text, err := readText("queue", raw)
	if err == nil && !IsQueue(text) {
		err = invalid("queue must be 1 to %d letters, digits or underscores", maxQueue)
	}
	return text, err
}

// IsQueue tells whether a text can be the name of a queue (TF-003).
func IsQueue(s string) bool {
	return len(s) >= 1 && len(s) <= maxQueue && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	})
}

// readPayload takes any JSON, null included (G-TF-31).
func (s *jobSpec) readPayload(raw []byte) error {
	if len(raw) > maxPayload {
		return invalid("payload has %d bytes, which is more than %d", len(raw), maxPayload)
	}
	s.payload = raw
	return nil
}

func readInt(name string, raw []byte, minValue, maxValue int) (int, error) {
	n, err := strictjson.Int(raw, 64)
	if errors.Is(err, strictjson.ErrKind) {
		return 0, invalid("%s must be an integer and is of type %s", name, strictjson.KindOf(raw))
	}
	if err != nil || n < int64(minValue) || n > int64(maxValue) {
		return 0, invalid("%s must be an integer from %d to %d", name, minValue, maxValue)
	}
	return int(n), nil
}

// readDependencies reads ids. The limit counts what was sent, and what is there
// twice is kept once (G-TF-18).
func readDependencies(raw []byte) (ids []string, err error) {
	err = readTexts("dependencies", raw, func(i int, text string) error {
		id, ok := uuids.Parse(text)
		if !ok {
			return invalid("dependencies[%d] is no UUID", i)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// readTexts reads a list of at most maxDependencies strings.
func readTexts(name string, raw []byte, take func(i int, text string) error) error {
	if k := strictjson.KindOf(raw); k != strictjson.KindArray {
		return invalid("%s must be an array and is of type %s", name, k)
	}
	for i, element := range strictjson.Elements(raw) {
		if i == maxDependencies {
			return invalid("%s has more than %d items", name, maxDependencies)
		}
		text, err := readText(fmt.Sprintf("%s[%d]", name, i), element)
		if err == nil {
			err = take(i, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readPolicy completes a policy with what is usual and judges it as a whole
// (TF-020).
func readPolicy(raw []byte) (Policy, error) {
	p := defaultPolicy
	if k := strictjson.KindOf(raw); k != strictjson.KindObject {
		return p, invalid("retry_policy must be an object and is of type %s", k)
	}
	given := map[string][]byte{}
	for name, value := range strictjson.Members(raw) {
		if err := policyNames.check(name); err != nil {
			return p, err
		}
		given[string(name)] = value
	}
	for _, m := range []struct {
		name string
		most int
		to   *int
	}{{"max_attempts", maxAttempts, &p.MaxAttempts},
		{"base_delay_seconds", maxBaseDelay, &p.BaseDelay},
		{"max_delay_seconds", maxMaxDelay, &p.MaxDelay}} {
		value := given[m.name]
		if value == nil {
			continue
		}
		n, err := readInt("retry_policy."+m.name, value, 1, m.most)
		if err != nil {
			return p, err
		}
		*m.to = n
	}
	if value := given["backoff_strategy"]; value != nil {
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

// checkReadOnly refuses an update that says another thing of what the server sets
// than what is (G-TF-07).
func (s *jobSpec) checkReadOnly(j *job.Job) error {
	same := map[string]func(raw []byte) bool{
		"id": func(raw []byte) bool {
			text, _ := strictjson.String(raw)
			id, ok := uuids.Parse(text)
			return ok && id == j.ID.Key
		},
		"created_at": func(raw []byte) bool {
			at, err := strictjson.Time(raw)
			return err == nil && at.Equal(j.CreatedAt)
		},
		"status": func(raw []byte) bool {
			text, err := strictjson.String(raw)
			return err == nil && text == string(j.State)
		},
		"attempt_count": func(raw []byte) bool {
			n, err := strictjson.Int(raw, 64)
			return err == nil && n == int64(attemptCount(j))
		},
	}
	for _, name := range []string{"id", "created_at", "status", "attempt_count"} {
		if raw := s.sent[name]; raw != nil && !same[name](raw) {
			return invalid("%s cannot be changed", name)
		}
	}
	return nil
}
