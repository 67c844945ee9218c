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
	"github.com/millrace/millrace/internal/webhook"
)

// A create, an update and each job of a graph are read in the same steps:
//
//	readBody ──► checkObject ──► readSpec ──► complete (new jobs)  ──► engine.Submit
//	                                     └──► apply (updates)      ──► engine.Change
//
// readSpec validates the members that were sent, complete adds the defaults of the others, and
// apply changes only the members that were sent.

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

// readBody reads the body of a request up to its route's limit (G-TF-32).
func readBody(c *httpapi.Call) ([]byte, error) {
	if err := checkContentType(c); err != nil {
		return nil, err
	}
	return c.Body()
}

// checkContentType refuses a body that is said to be something else than JSON.
func checkContentType(c *httpapi.Call) error {
	if len(c.Request.Header["Content-Type"]) > 0 && !c.HasJSONContentType() {
		return invalid("the body's Content-Type must be application/json")
	}
	return nil
}

// readNothing reads the body of a request that takes no members: nothing, then of any Content-Type,
// or an empty object.
func readNothing(c *httpapi.Call) error {
	text, err := c.Body()
	if err != nil || len(strictjson.Trim(text)) == 0 {
		return err
	}
	if err := checkContentType(c); err != nil {
		return err
	}
	if err := checkObject(text); err != nil {
		return err
	}
	for name := range strictjson.Members(text) {
		return invalid("unknown member %q; the body must be empty", name)
	}
	return nil
}

// checkObject refuses a text that is no JSON object (TF-086).
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

// jobSpec holds the members of a job that a request names.
type jobSpec struct {
	name         string
	queue        string
	payload      []byte
	priority     int
	dependencies []string
	policy       Policy
	requested    *webhook.Callback // nil: none
	callback     string            // requested, as the job keeps it

	sent map[string][]byte // the members as sent; of a repeated member the last one counts
}

// has reports whether the request names a member. A member that is null is named: as a payload it
// is valid, and any other reader refuses it (G-TF-06, G-TF-31).
func (s *jobSpec) has(name string) bool { return s.sent[name] != nil }

// memberReaders read and validate the members of a job by the rules of 3.1. They run in the order
// of the document, so the same request always gets the same error.
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
	{callbackMember, (*jobSpec).readCallback},
}

// readSpec reads an object that checkObject has accepted. It refuses misspelt members and ignores
// other unknown ones (G-TF-15).
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

// complete checks that the required members of a new job are there and sets the defaults of the
// others (G-TF-14).
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

// readText reads a string; name is the path of the member in errors.
func readText(name string, raw []byte) (string, error) {
	text, err := strictjson.String(raw)
	switch {
	case errors.Is(err, strictjson.ErrKind):
		return "", invalid("%s must be a string and is of type %s", name, strictjson.KindOf(raw))
	case err != nil: // a text that no store can keep as it was sent
		return "", invalid("%s: %v", name, err)
	}
	return text, nil
}

// readName reads a string of 1 to limit characters, which are code points (G-TF-17).
func readName(name string, raw []byte, limit int) (string, error) {
	text, err := readText(name, raw)
	if err != nil {
		return "", err
	}
	if n := utf8.RuneCountInString(text); n < 1 || n > limit {
		return "", invalid("%s must have 1 to %d characters and has %d", name, limit, n)
	}
	return text, nil
}

// readQueue reads the name of a queue. A queue need not exist before its first job.
func readQueue(raw []byte) (string, error) {
	text, err := readText("queue", raw)
	if err != nil {
		return "", err
	}
	if !isQueue(text) {
		return "", invalid("queue must be 1 to %d letters, digits or underscores", maxQueue)
	}
	return text, nil
}

// checkQueue returns why no queue has a name.
func checkQueue(name string) error {
	if isQueue(name) {
		return nil
	}
	return fmt.Errorf("%q is not a valid name for a queue of TaskFlow: names have 1 to %d "+
		"letters, digits and underscores", name, maxQueue)
}

// isQueue reports whether a text is a valid name of a queue (TF-003).
func isQueue(s string) bool {
	return len(s) >= 1 && len(s) <= maxQueue && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	})
}

// readPayload accepts any JSON, null included (G-TF-31). The limit is on the value as it was sent,
// without the white space around it (G-TF-16), and these bytes are stored.
func (s *jobSpec) readPayload(raw []byte) error {
	if len(raw) > maxPayload {
		return invalid("payload has %d bytes, which is more than %d", len(raw), maxPayload)
	}
	s.payload = raw
	return nil
}

// readInt reads an integer within limits. 5.0 is an integer, 1.5 and "5" are not (TF-006).
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

// readDependencies reads ids. The limit applies to the list as sent; a repeated id is stored once
// (G-TF-18).
func readDependencies(raw []byte) (ids []string, err error) {
	err = readTexts("dependencies", raw, func(i int, text string) error {
		id, ok := uuids.Parse(text)
		if !ok {
			return invalid("dependencies[%d] is not a UUID", i)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// readTexts passes the elements of a list of at most maxDependencies strings to add. It ends with
// the first error of add.
func readTexts(name string, raw []byte, add func(i int, text string) error) error {
	if k := strictjson.KindOf(raw); k != strictjson.KindArray {
		return invalid("%s must be an array and is of type %s", name, k)
	}
	for i, element := range strictjson.Elements(raw) {
		if i == maxDependencies {
			return invalid("%s has more than %d items", name, maxDependencies)
		}
		text, err := readText(fmt.Sprintf("%s[%d]", name, i), element)
		if err != nil {
			return err
		}
		if err := add(i, text); err != nil {
			return err
		}
	}
	return nil
}

// readOnlyMembers are the members that only the server, or the creation of a job, sets. Each
// unchanged reports whether a value is the job's current one; a value that cannot be read is not.
var readOnlyMembers = []struct {
	name      string
	unchanged func(raw []byte, j *job.Job) bool
}{
	{"id", func(raw []byte, j *job.Job) bool {
		text, _ := strictjson.String(raw)
		id, ok := uuids.Parse(text)
		return ok && id == j.ID.Key
	}},
	{"created_at", func(raw []byte, j *job.Job) bool {
		at, err := strictjson.Time(raw)
		if err != nil {
			return false
		}
		return at.Equal(j.CreatedAt)
	}},
	{"status", func(raw []byte, j *job.Job) bool {
		text, err := strictjson.String(raw)
		if err != nil {
			return false
		}
		return text == string(j.State)
	}},
	{"attempt_count", func(raw []byte, j *job.Job) bool {
		n, err := strictjson.Int(raw, 64)
		if err != nil {
			return false
		}
		return n == int64(attemptCount(j))
	}},
	{"rerun_of", func(raw []byte, j *job.Job) bool {
		text, err := strictjson.String(raw)
		if err != nil {
			return false
		}
		return text == decodeDefinition(j.Definition).rerunOf
	}},
	{callbackMember, keepsCallback},
}

// checkReadOnly refuses an update that changes a read-only member. The current value is accepted,
// so that a client can send back a job that it has got and edited (G-TF-07).
func (s *jobSpec) checkReadOnly(j *job.Job) error {
	for _, member := range readOnlyMembers {
		raw := s.sent[member.name]
		if raw == nil || member.unchanged(raw, j) {
			continue
		}
		return invalid("%s cannot be changed", member.name)
	}
	return nil
}
