package forgerun

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/webhook"
)

// A request is refused in two ways, which have codes of their own: it is malformed if it is not
// JSON, lacks a required member or has a member of the wrong type; it is invalid if it is
// well-formed and breaks a rule of the contract. The functions parseX refuse malformed requests,
// and those named check refuse invalid ones. If a request has several errors, a malformed one is
// reported.

// types lists the types of jobs (FR-058). A setting says which of them are allowed.
var types = []string{"EXECUTE", "DEFERRED", "EMIT_EVENT"}

const (
	maxIdempotencyKey = 255 // bytes

	// pastTolerance is how far execution_at may lie in the past (FR-062).
	pastTolerance = time.Second
)

// jobSpec is a request for a job. It is stored as the job's payload, beside the definition: a
// request with a known idempotency key repeats the first one if their specs are equal (G-FR-22).
type jobSpec struct {
	typ         string
	kind        string // empty: the server chooses one
	executionAt time.Time
	callback    string
}

// equal compares what a request asks for: the order of members, unknown members and the idempotency
// key do not count, and times are equal if they are the same instant (G-FR-22).
func (t jobSpec) equal(o jobSpec) bool {
	return t.typ == o.typ && t.kind == o.kind && t.callback == o.callback &&
		t.executionAt.Equal(o.executionAt)
}

// encode returns the spec as it is stored.
func (t *jobSpec) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 128))
	o.Text("type", t.typ)
	o.Optional("work_kind", t.kind)
	o.Time("execution_at", t.executionAt)
	o.Optional("callback", t.callback)
	return o.End()
}

// decodeJobSpec is the inverse of encode; a member that cannot be read stays empty.
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

	key         string // the idempotency key in the body
	invalidTime bool   // execution_at is a string and no valid time
}

// parseObject checks that a body is a JSON object. Unless it is required it may be empty.
func parseObject(body []byte, required bool) error {
	if len(strictjson.Trim(body)) == 0 {
		if required {
			return malformed("the body is missing")
		}
		return nil
	}
	if err := strictjson.Check(body); err != nil {
		return malformed("the body is not JSON: %v", err)
	}
	if k := strictjson.KindOf(body); k != strictjson.KindObject {
		return malformed("the body must be an object and is of type %s", k)
	}
	return nil
}

// readText reads a member that is a string. A text that no store can keep as it was sent is
// invalid.
func readText(name string, raw []byte) (string, error) {
	s, err := strictjson.String(raw)
	switch {
	case errors.Is(err, strictjson.ErrKind):
		return "", malformed("%s must be a string and is of type %s", name, strictjson.KindOf(raw))
	case err != nil:
		return "", invalid("%s: %v", name, err)
	}
	return s, nil
}

// readOptionalText reads a string that may be null or missing.
func readOptionalText(name string, raw []byte) (string, error) {
	if raw == nil || strictjson.IsNull(raw) {
		return "", nil
	}
	return readText(name, raw)
}

// findMembers returns members of an object by name. Of a repeated member the last one counts
// (G-X-15).
func findMembers(body []byte, names ...string) map[string][]byte {
	found := make(map[string][]byte, len(names))
	for name, value := range strictjson.Members(body) {
		if slices.Contains(names, string(name)) {
			found[string(name)] = value
		}
	}
	return found
}

// parseSubmission reads the body of a submit and refuses a malformed one; check validates the
// rules. Of several errors a malformed one is reported first.
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
		s.invalidTime = timeErr != nil || s.executionAt.IsZero() // the zero time stands for none
	}
	if err := gravest(errs[:]...); err != nil {
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

// isPresent reports whether a member is given: null stands for a missing one.
func isPresent(raw []byte) bool { return raw != nil && !strictjson.IsNull(raw) }

// gravest returns the first malformed error or, if there is none, the first error. It returns
// nil if there is none at all.
func gravest(errs ...error) error {
	var first error
	for _, err := range errs {
		if isMalformed(err) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// idempotencyKeyHeader reads the Idempotency-Key of a create action (G-FR-24). An empty header
// counts as absent.
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

// checkIdempotencyKey refuses a key that no store can keep or that is too long. name is the member
// or header that it came in.
func checkIdempotencyKey(name, key string) error {
	if len(key) > maxIdempotencyKey {
		return invalid("%s is longer than %d bytes", name, maxIdempotencyKey)
	}
	if !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		return invalid("%s is not plain text", name)
	}
	return nil
}

// maxQuoted bounds how many bytes of a value error messages quote.
const maxQuoted = 100

// quote quotes a client's value, or its beginning, for an error message.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "")) + "…"
}

// check validates a submission by the rules of the contract (FR-007). Its error is the first rule
// that is broken. allowed are the types of the setting; now is the time of the request.
func (s *submission) check(allowed []string, now time.Time) error {
	switch {
	case !slices.Contains(types, s.typ):
		return invalid("type must be one of %s, not %s", strings.Join(types, ", "), quote(s.typ))
	case !slices.Contains(allowed, s.typ): // FR-059
		return invalid("type %s is not allowed on this server", s.typ)
	case s.kind != "" && kindByName[s.kind] == nil: // FR-074
		return invalid("work_kind must be one of %s, not %s", kindNames, quote(s.kind))
	case s.kind != "" && kindByName[s.kind].outcome == rejected: // FR-113
		return invalid("work_kind %s has an invalid payload by design", s.kind)
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

// checkURL checks the form of a URL that events may be sent to (FR-065, FR-186). Whether its
// address is allowed is checked when a request is sent.
func checkURL(name, raw string) error {
	if _, err := egress.ParseURL(raw); err != nil {
		return invalid("%s: %v", name, err)
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

// parseKeyID reads the body of a revocation (FR-051). A key id that is no UUID is malformed
// (G-FR-46).
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

// parseWebhook reads and validates the body of a registration (FR-186, G-FR-49, G-FR-61).
func parseWebhook(body []byte) (h webhookRequest, err error) {
	if err := parseObject(body, true); err != nil {
		return h, err
	}
	m := findMembers(body, "url", "events")
	for _, name := range []string{"url", "events"} {
		if m[name] == nil {
			return h, malformed("%s is missing%s", name, webhookMemberHelp[name])
		}
	}
	var urlErr error
	if h.url, urlErr = readText("url", m["url"]); isMalformed(urlErr) {
		return h, urlErr
	}
	if k := strictjson.KindOf(m["events"]); k != strictjson.KindArray {
		return h, malformed("events must be an array and is of type %s%s", k,
			webhookMemberHelp["events"])
	}
	var eventErr error
	if h.events, eventErr = readEventNames(m["events"]); isMalformed(eventErr) {
		return h, eventErr
	}
	if urlErr != nil {
		return h, urlErr
	}
	if err := checkURL("url", h.url); err != nil {
		return h, err
	}
	return h, eventErr
}

// readEventNames reads the events of a webhook, sorted and each once. A malformed name is reported
// before one that is no event.
func readEventNames(raw []byte) (events []string, err error) {
	for i, element := range strictjson.Elements(raw) {
		name, textErr := readText(fmt.Sprintf("events[%d]", i), element)
		if isMalformed(textErr) {
			return nil, textErr
		}
		if err != nil {
			continue // only a malformed name is worse than the first unknown one
		}
		if textErr != nil || !slices.Contains(eventNames, name) {
			err = invalid("events[%d] is not the name of an event: %s%s", i,
				quote(name), webhookMemberHelp["events"])
		}
		events = append(events, name)
	}
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, invalid("events is empty, so the webhook would never be called%s",
			webhookMemberHelp["events"])
	}
	slices.Sort(events)
	return slices.Compact(events), nil
}

// webhookMemberHelp explains a member of a registration at the end of an error message.
var webhookMemberHelp = map[string]string{
	"url":    ": where events are sent to, by http or https",
	"events": ": it is an array of " + strings.Join(eventNames, ", "),
}

// parseReplay reads the body of a replay. Without a state it is about what was given up.
func parseReplay(body []byte) (f webhook.ReplayFilter, err error) {
	m := findMembers(body, "from", "to", "state", "cursor")
	state, stateErr := readOptionalText("state", m["state"])
	cursor, cursorErr := readOptionalText("cursor", m["cursor"])
	var fromErr, toErr error
	f.From, fromErr = readOptionalTime("from", m["from"])
	f.To, toErr = readOptionalTime("to", m["to"])
	if err := gravest(fromErr, toErr, stateErr, cursorErr); err != nil {
		return f, err
	}
	f.Status = cmp.Or(webhook.Status(state), webhook.Exhausted)
	if f.Status != webhook.Exhausted && f.Status != webhook.Delivered {
		return f, invalid("state must be exhausted or delivered, not %s", quote(state))
	}
	ok := cursor == ""
	if !ok {
		f.After, ok = replayPages.Parse(cursor)
	}
	if !ok {
		return f, httpapi.ErrCursor
	}
	return f, nil
}

// readOptionalTime reads a time that may be null or missing, which is the zero time.
func readOptionalTime(name string, raw []byte) (t time.Time, err error) {
	if !isPresent(raw) {
		return t, nil
	}
	if _, err := readText(name, raw); err != nil {
		return t, err
	}
	if t, err = strictjson.Time(raw); err != nil {
		return t, invalid("%s must be a time such as 2026-01-02T03:04:05Z", name)
	}
	return t, nil
}

// isMalformed reports whether an error says that a request is malformed; false for nil.
func isMalformed(err error) bool { return err != nil && answerTo(err).Code == codeMalformed }
