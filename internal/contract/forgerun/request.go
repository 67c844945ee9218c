package forgerun

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/uuids"
)

// types are those there are (FR-058); which of them are allowed is a setting.
var types = []string{"EXECUTE", "DEFERRED", "EMIT_EVENT"}

const (
	maxIdempotencyKey = 255 // bytes of an idempotency key

	// pastTolerance is how far a time may lie in the past and still count as now
	// (FR-062).
	pastTolerance = time.Second
)

// jobSpec are what a client asked for, as the store keeps it beside the definition:
// two requests are the same when their terms are (G-FR-22).
type jobSpec struct {
	typ         string
	kind        string // empty where the client left it open
	executionAt time.Time
	callback    string
}

func (t jobSpec) equal(o jobSpec) bool {
	return t.typ == o.typ && t.kind == o.kind && t.callback == o.callback &&
		t.executionAt.Equal(o.executionAt)
}

// encode writes terms as they are stored.
func (t *jobSpec) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 128))
	o.Text("type", t.typ)
	o.Optional("work_kind", t.kind)
	o.Time("execution_at", t.executionAt)
	o.Optional("callback", t.callback)
	return o.End()
}

// decodeJobSpec reads what encode wrote; what cannot be read is left out.
func decodeJobSpec(raw []byte) (t jobSpec) {
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "type":
			t.typ, _ = strictjson.String(value)
		case "work_kind":
			t.kind, _ = strictjson.String(value)
		case "execution_at":
			t.executionAt, _ = strictjson.Time(value)
		case "callback":
			t.callback, _ = strictjson.String(value)
		}
	}
	return t
}

// submission is a parsed request for a job.
type submission struct {
	jobSpec

	key         string // of idempotency, from the body
	invalidTime bool   // execution_at is there and cannot be used
}

// parseObject checks that a body is a JSON object. An empty one is an object
// without members where that is allowed.
func parseObject(body []byte, required bool) error {
	if len(strictjson.Trim(body)) == 0 {
		if required {
			return malformed("the body is missing")
		}
		return nil
	}
	if err := strictjson.Check(body); err != nil {
		return malformed("the body is not JSON: " + err.Error())
	}
	if k := strictjson.KindOf(body); k != strictjson.KindObject {
		return malformed(fmt.Sprintf("the body must be an object and is of type %s", k))
	}
	return nil
}

// readText reads a member that is a string. Text that no store can keep as it was
// sent breaks a rule.
func readText(name string, raw []byte) (string, error) {
	s, err := strictjson.String(raw)
	switch {
	case errors.Is(err, strictjson.ErrKind):
		return "", malformed(fmt.Sprintf("%s must be a string and is of type %s", name,
			strictjson.KindOf(raw)))
	case err != nil:
		return "", invalid(fmt.Sprintf("%s: %v", name, err))
	}
	return s, nil
}

// readOptionalText is text for members that may be null or missing.
func readOptionalText(name string, raw []byte) (string, error) {
	if raw == nil || strictjson.IsNull(raw) {
		return "", nil
	}
	return readText(name, raw)
}

// findMembers finds members of an object by name; of one that is there twice the last
// counts (G-X-15).
func findMembers(body []byte, names ...string) map[string][]byte {
	found := make(map[string][]byte, len(names))
	for name, value := range strictjson.Members(body) {
		if slices.Contains(names, string(name)) {
			found[string(name)] = value
		}
	}
	return found
}

// parseSubmission reads the body of a submit. It refuses what is malformed;
// rules are for check. Of two things that are wrong the malformed one counts.
func parseSubmission(body []byte) (s submission, err error) {
	if err := parseObject(body, true); err != nil {
		return s, err
	}
	m := findMembers(body, "type", "work_kind", "execution_at", "callback", "idempotency_key")
	if m["type"] == nil {
		return s, malformed("type is missing")
	}
	var errs [5]error
	s.typ, errs[0] = readText("type", m["type"])
	s.kind, errs[1] = readOptionalText("work_kind", m["work_kind"])
	s.callback, errs[2] = readOptionalText("callback", m["callback"])
	s.key, errs[3] = readOptionalText("idempotency_key", m["idempotency_key"])
	if raw := m["execution_at"]; raw != nil && !strictjson.IsNull(raw) {
		_, errs[4] = readText("execution_at", raw)
		var timeErr error
		s.executionAt, timeErr = strictjson.Time(raw)
		s.invalidTime = timeErr != nil || s.executionAt.IsZero() // which stands for no time
	}
	if err := mostSevere(errs[:]...); err != nil {
		return s, err
	}
	switch {
	case isPresent(m["work_kind"]) && s.kind == "":
		return s, invalid("work_kind is empty")
	case isPresent(m["callback"]) && s.callback == "":
		return s, invalid("callback is empty")
	case isPresent(m["idempotency_key"]) && s.key == "":
		return s, invalid("idempotency_key is empty")
	}
	return s, checkIdempotencyKey("idempotency_key", s.key)
}

func isPresent(raw []byte) bool { return raw != nil && !strictjson.IsNull(raw) }

// mostSevere returns the first malformed error, else the first.
func mostSevere(errs ...error) error {
	var first error
	for _, err := range errs {
		if err != nil && toProblem(err).code == codeMalformed {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// idempotencyKeyHeader reads the Idempotency-Key of a create action (G-FR-24). An empty one
// is none.
func idempotencyKeyHeader(h http.Header) (string, error) {
	given := h["Idempotency-Key"]
	if len(given) > 1 {
		return "", malformed("Idempotency-Key is given twice")
	}
	if len(given) == 0 {
		return "", nil
	}
	return given[0], checkIdempotencyKey("Idempotency-Key", given[0])
}

func checkIdempotencyKey(name, key string) error {
	if len(key) > maxIdempotencyKey {
		return invalid(fmt.Sprintf("%s is longer than %d bytes", name, maxIdempotencyKey))
	}
	if !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		return invalid(name + " is not plain text")
	}
	return nil
}

// maxQuoted bounds how much of what a client sent is sent back to it.
const maxQuoted = 100

// quote shows a client what it sent, or the beginning of that.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "")) + "…"
}

// check holds a submission against the rules of the contract (FR-007).
func (s *submission) check(allowed []string, now time.Time) error {
	switch {
	case !slices.Contains(types, s.typ):
		return invalid("type must be one of " + strings.Join(types, ", ") + ", not " + quote(s.typ))
	case !slices.Contains(allowed, s.typ): // FR-059
		return invalid("type " + s.typ + " is not allowed on this server")
	case s.kind != "" && kindByName[s.kind] == nil: // FR-074
		return invalid("work_kind must be one of " + kindNames + ", not " + quote(s.kind))
	case s.kind != "" && kindByName[s.kind].ending == rejected: // FR-113
		return invalid("work_kind " + s.kind + " has an invalid payload by design")
	case s.invalidTime:
		return invalid("execution_at must be a time such as 2026-01-02T03:04:05Z")
	case s.typ == "DEFERRED" && s.executionAt.IsZero(): // FR-063
		return invalid("execution_at is missing, which type DEFERRED needs")
	case !s.executionAt.IsZero() && s.executionAt.Before(now.Add(-pastTolerance)): // FR-062
		return invalid("execution_at lies in the past")
	case s.callback != "":
		return checkURL("callback", s.callback)
	}
	return nil
}

// checkURL takes what a webhook may be sent to (FR-065, FR-186); where that leads
// is for the guard of outgoing requests to judge.
func checkURL(name, raw string) error {
	if _, err := egress.ParseURL(raw); err != nil {
		return invalid(name + ": " + err.Error())
	}
	return nil
}

// parseRotate reads the body of a key's creation (FR-041).
func parseRotate(body []byte) (rotate bool, err error) {
	if err := parseObject(body, false); err != nil {
		return false, err
	}
	raw := findMembers(body, "rotate")["rotate"]
	if !isPresent(raw) {
		return false, nil
	}
	if rotate, err = strictjson.Bool(raw); err != nil {
		return false, malformed("rotate must be true or false")
	}
	return rotate, nil
}

// parseKeyID reads the body of a revocation (FR-051): one that is no UUID is
// malformed (G-FR-46).
func parseKeyID(body []byte) (string, error) {
	if err := parseObject(body, true); err != nil {
		return "", err
	}
	raw := findMembers(body, "key_id")["key_id"]
	if raw == nil {
		return "", malformed("key_id is missing")
	}
	id, err := readText("key_id", raw)
	if err != nil {
		return "", malformed("key_id must be a UUID")
	}
	if id, ok := uuids.Parse(id); ok {
		return id, nil
	}
	return "", malformed("key_id must be a UUID")
}

// webhookRequest is a parsed request to register a webhook.
type webhookRequest struct {
	url    string
	events []string // sorted, each once
}

// parseWebhook reads and judges the body of a registration (FR-186, G-FR-49,
// G-FR-61).
func parseWebhook(body []byte) (h webhookRequest, err error) {
	if err := parseObject(body, true); err != nil {
		return h, err
	}
	m := findMembers(body, "url", "events")
	for _, name := range []string{"url", "events"} {
		if m[name] == nil {
			return h, malformed(name + " is missing" + webhookMemberHelp[name])
		}
	}
	var urlErr error
	if h.url, urlErr = readText("url", m["url"]); isMalformed(urlErr) {
		return h, urlErr
	}
	if k := strictjson.KindOf(m["events"]); k != strictjson.KindArray {
		return h, malformed(fmt.Sprintf("events must be an array and is of type %s%s", k,
			webhookMemberHelp["events"]))
	}
	var eventErr error
	for i, raw := range strictjson.Elements(m["events"]) {
		name, err := readText(fmt.Sprintf("events[%d]", i), raw)
		switch {
		case isMalformed(err):
			return h, err
		case eventErr == nil && (err != nil || !slices.Contains(eventNames, name)):
			eventErr = invalid(fmt.Sprintf("events[%d] is not the name of an event: %s%s", i,
				quote(name), webhookMemberHelp["events"]))
		}
		h.events = append(h.events, name)
	}
	if urlErr == nil {
		urlErr = checkURL("url", h.url)
	}
	if len(h.events) == 0 {
		eventErr = invalid("events is empty, so the webhook would never be called" +
			webhookMemberHelp["events"])
	}
	slices.Sort(h.events)
	h.events = slices.Compact(h.events)
	return h, mostSevere(urlErr, eventErr)
}

// webhookMemberHelp says of a member of a registration what it is, behind what is wrong with it.
var webhookMemberHelp = map[string]string{
	"url":    ": where events are sent to, by http or https",
	"events": ": it is an array of " + strings.Join(eventNames, ", "),
}

func isMalformed(err error) bool { return err != nil && toProblem(err).code == codeMalformed }
