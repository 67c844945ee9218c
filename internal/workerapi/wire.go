package workerapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// The limits of requests (G-X-20).
const (
	maxWait       = 30 // seconds
	maxJobs       = 1000
	maxQueues     = 100
	maxQueueName  = 1024 // characters
	maxWorkerName = 255
	maxErrorType  = 255
	maxError      = 16 << 10 // bytes
	maxRunID      = 255
)

// readObject reads a body that is a JSON object. An empty body counts as an empty object. A body
// that is no JSON or no object is refused before anything is claimed or finished.
func readObject(c *httpapi.Call) ([]byte, error) {
	body, err := c.OptionalJSONBody()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return []byte("{}"), nil
	}
	if err := strictjson.Check(body); err != nil {
		return nil, invalid("the body is not JSON: " + err.Error())
	}
	if strictjson.KindOf(body) != strictjson.KindObject {
		return nil, invalid("the body is not an object")
	}
	return body, nil
}

// claimRequest is the body of a claim.
type claimRequest struct {
	contract    string
	queues      []string // none means all
	max         int
	waitSeconds int
	worker      string
}

// readClaim reads an object that has members with these names only. Other routes ignore unknown
// members; but if a misspelt "queues" were ignored, its sender would claim jobs of all queues.
func readClaim(c *httpapi.Call, allowed ...string) ([]byte, error) {
	body, err := readObject(c)
	if err != nil {
		return nil, err
	}
	for name := range strictjson.Members(body) {
		if !slices.Contains(allowed, string(name)) {
			return nil, invalid(fmt.Sprintf("unknown member %.100q; a claim takes %s", name,
				strings.Join(allowed, ", ")))
		}
	}
	return body, nil
}

// read reads the body of a claim for any jobs of a contract. A number above its maximum counts as
// the maximum, so a worker of another version still gets jobs.
func (q *claimRequest) read(c *httpapi.Call) error {
	body, err := readClaim(c, "contract", "queues", "max", "wait_seconds", "worker")
	if err != nil {
		return err
	}
	q.max = 1
	for name, value := range strictjson.Members(body) {
		if strictjson.IsNull(value) {
			continue // null counts as absent
		}
		switch string(name) {
		case "queues":
			q.queues, err = readQueues(value)
		case "max":
			q.max, err = readNumber("max", value, 1, maxJobs)
		case "wait_seconds":
			q.waitSeconds, err = readNumber("wait_seconds", value, 0, maxWait)
		}
		if err != nil {
			return err
		}
	}
	return q.readCaller(c, body)
}

// readOne reads the body of a claim for the one job that the path names.
func (q *claimRequest) readOne(c *httpapi.Call) error {
	body, err := readClaim(c, "contract", "worker")
	if err != nil {
		return err
	}
	return q.readCaller(c, body)
}

// readCaller reads the contract of the jobs and the name of the worker.
func (q *claimRequest) readCaller(c *httpapi.Call, body []byte) (err error) {
	q.worker = httpapi.RemoteHost(c.Request)
	for name, value := range strictjson.Members(body) {
		switch {
		case string(name) == "contract":
			q.contract, err = readText("contract", value, maxWorkerName)
		case string(name) == "worker" && !strictjson.IsNull(value):
			q.worker, err = readText("worker", value, maxWorkerName)
		}
		if err != nil {
			return err
		}
	}
	if q.contract == "" {
		return invalid("contract is missing")
	}
	return nil
}

// readQueues reads the names of queues, each once. An empty list is refused and does not mean all
// queues: a worker whose list came out empty by a mistake would take the jobs of others.
func readQueues(raw []byte) ([]string, error) {
	if strictjson.KindOf(raw) != strictjson.KindArray {
		return nil, invalid("queues must be an array of names")
	}
	var all []string
	for _, value := range strictjson.Elements(raw) {
		queue, err := readText("queues", value, maxQueueName)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, queue) {
			all = append(all, queue)
		}
		if len(all) > maxQueues {
			return nil, invalid("queues must have at most " + strconv.Itoa(maxQueues) + " names")
		}
	}
	if len(all) == 0 {
		return nil, invalid("queues is empty; leave it out to claim from all queues")
	}
	return all, nil
}

// readNumber reads a whole number of minValue or more. A larger one than maxValue counts as that.
// name is the member's name in the error.
func readNumber(name string, raw []byte, minValue, maxValue int64) (int, error) {
	n, err := strictjson.Int(raw, 64)
	if err != nil || n < minValue {
		return 0, invalid(name + " must be a whole number of " + strconv.FormatInt(minValue, 10) +
			" or more")
	}
	return int(min(n, maxValue)), nil
}

// readText reads a string that is neither empty nor too long and that every store can keep.
func readText(name string, raw []byte, maxLen int) (string, error) {
	s, err := strictjson.String(raw)
	if err != nil || s == "" || utf8.RuneCountInString(s) > maxLen || strings.IndexByte(s, 0) >= 0 {
		return "", invalid(name + " must be a string of 1 to " + strconv.Itoa(maxLen) +
			" characters without U+0000")
	}
	return s, nil
}

// readState reads the state of a heartbeat; nil keeps the stored one.
func readState(c *httpapi.Call) (state []byte, err error) {
	body, err := readObject(c)
	return findMember(body, "state"), err
}

// readResult reads the result of a run; nil means none.
func readResult(object []byte) []byte { return findMember(object, "result") }

// findMember returns the value of a member; nil when the object does not have it.
func findMember(object []byte, member string) (found []byte) {
	for name, value := range strictjson.Members(object) {
		if string(name) == member {
			found = value
		}
	}
	return found
}

// failure is a worker's report of a run that failed.
type failure struct {
	message, errorType string
	retryable          bool
}

// readFailure reads a failure. at is the path of the object, a prefix for the names in errors.
// error and retryable are required: a worker that leaves them out would decide without knowing it.
func readFailure(at string, object []byte) (f failure, err error) {
	var hasError, hasRetryable bool
	for name, value := range strictjson.Members(object) {
		switch {
		case string(name) == "error":
			f.message, err = strictjson.String(value)
			if errors.Is(err, strictjson.ErrKind) {
				return f, invalid(at + "error must be a string")
			}
			f.message, hasError = sanitizeMessage(f.message), true
		case string(name) == "error_type" && !strictjson.IsNull(value):
			if f.errorType, err = readText(at+"error_type", value, maxErrorType); err != nil {
				return f, err
			}
		case string(name) == "retryable":
			if f.retryable, err = strictjson.Bool(value); err != nil {
				return f, invalid(at + "retryable must be true or false")
			}
			hasRetryable = true
		}
	}
	switch {
	case !hasError:
		return f, invalid(at + "error is missing")
	case !hasRetryable:
		return f, invalid(at + "retryable is missing")
	}
	return f, nil
}

// sanitizeMessage makes a message one that every store can keep, so that no message keeps a worker
// from finishing its run: it is cut to maxError bytes and loses U+0000. Half a surrogate pair has
// become U+FFFD when the JSON was read.
func sanitizeMessage(message string) string {
	if len(message) > maxError {
		message = strings.ToValidUTF8(message[:maxError], "")
	}
	return strings.ReplaceAll(message, "\x00", "\uFFFD")
}

// readOutcomes reads the outcomes of several runs, each by the rules of the route for one run.
func readOutcomes(c *httpapi.Call) ([]*outcome, error) {
	body, err := readObject(c)
	if err != nil {
		return nil, err
	}
	list := findMember(body, "outcomes")
	if list == nil || strictjson.KindOf(list) != strictjson.KindArray {
		return nil, invalid("outcomes must be an array")
	}
	var all []*outcome
	for i, value := range strictjson.Elements(list) {
		if i == maxJobs {
			return nil, invalid("outcomes must have at most " + strconv.Itoa(maxJobs) + " elements")
		}
		o, err := readOutcome("outcomes["+strconv.Itoa(i)+"]", value)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		return nil, invalid("outcomes is empty")
	}
	return all, nil
}

// readOutcome reads one outcome; at is its path in the body, for error texts. A run id that cannot
// be one refuses only this outcome, everything else that is wrong refuses the request.
func readOutcome(at string, raw []byte) (*outcome, error) {
	if strictjson.KindOf(raw) != strictjson.KindObject {
		return nil, invalid(at + " is not an object")
	}
	o, members := &outcome{}, map[string][]byte{}
	for name, value := range strictjson.Members(raw) {
		switch name := string(name); name {
		case "run_id", "complete", "fail", "release":
			if members[name] = value; strictjson.IsNull(value) {
				delete(members, name) // null counts as absent
			}
		}
	}
	id, err := readText(at+".run_id", members["run_id"], maxRunID)
	if err != nil {
		return nil, err
	}
	if delete(members, "run_id"); len(members) != 1 {
		return nil, invalid(at + " must have one of complete, fail and release")
	}
	for name, value := range members {
		err = o.read(at+"."+name, name, value)
	}
	o.id = id
	o.run, o.err = parseRunID(id)
	return o, err
}

// read reads the member that says how the run ended. Its value is the body of the route with the
// same name.
func (o *outcome) read(at, name string, value []byte) error {
	if strictjson.KindOf(value) != strictjson.KindObject {
		return invalid(at + " is not an object")
	}
	switch name {
	case "complete":
		o.completes, o.result = true, readResult(value)
		o.plan = completed(o.result)
	case "fail":
		f, err := readFailure(at+".", value)
		o.plan = failedWith(f)
		return err
	case "release":
		o.plan = released
	}
	return nil
}

// appendJob appends a claimed job. The payload is copied byte for byte, as it was submitted; the
// state is the progress of an earlier attempt.
func appendJob(b []byte, contract *Adapter, j *job.Job) []byte {
	b = append(b, `{"job_id":`...)
	b = strictjson.AppendString(b, j.ID.Key)
	b = append(b, `,"contract":`...)
	b = strictjson.AppendString(b, contract.Name)
	b = append(b, `,"queue":`...)
	b = strictjson.AppendString(b, j.Queue)
	b = append(b, `,"run_id":"`...)
	b = append(b, j.Run.String()...)
	b = append(b, `","attempt":`...)
	b = strconv.AppendInt(b, int64(contract.Attempt(j)), 10)
	b = append(b, `,"payload":`...)
	b = appendRaw(b, contract.payload(j))
	b = append(b, `,"state":`...)
	b = appendRaw(b, j.Progress)
	b = append(b, `,"lease_seconds":`...)
	b = strconv.AppendFloat(b, j.Lease.Truncate(time.Millisecond).Seconds(), 'f', -1, 64)
	return append(b, '}')
}

// appendRaw appends a body that is JSON; null when there is none.
func appendRaw(b, raw []byte) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

// jobList returns the answer to a claim.
func jobList(contract *Adapter, jobs []*job.Job) []byte {
	b := append(make([]byte, 0, 64+256*len(jobs)), `{"jobs":[`...)
	for i, j := range jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJob(b, contract, j)
	}
	return append(b, "]}"...)
}

// sendHeartbeat answers a heartbeat: until when the lease lasts, and whether the worker should stop
// because its run has timed out.
func sendHeartbeat(c *httpapi.Call, until time.Time, cancel bool) {
	b := strictjson.AppendTime([]byte(`{"lease_until":`), until)
	b = strconv.AppendBool(append(b, `,"cancel":`...), cancel)
	c.Send(http.StatusOK, httpapi.JSON, append(b, '}'))
}

// sendStatus answers a request that finished or started a run, with the state of its job now.
func sendStatus(c *httpapi.Call, jobID, status string) {
	c.Send(http.StatusOK, httpapi.JSON, append(appendStatus([]byte{'{'}, jobID, status), '}'))
}

// appendStatus appends the members that show the state of a job.
func appendStatus(b []byte, jobID, status string) []byte {
	b = strictjson.AppendString(append(b, `"job_id":`...), jobID)
	return strictjson.AppendString(append(b, `,"status":`...), status)
}

// outcomeList returns the answer to a batch: for each run the state of its job or why it was
// refused, in the order of the request.
func (a *Server) outcomeList(all []*outcome) []byte {
	b := append(make([]byte, 0, 64+160*len(all)), `{"outcomes":[`...)
	for i, o := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = strictjson.AppendString(append(b, `{"run_id":`...), o.id)
		b = append(a.appendOutcome(append(b, ','), o), '}')
	}
	return append(b, "]}"...)
}

// appendOutcome appends the members that show the state of the job of a run, or why its outcome was
// refused.
func (a *Server) appendOutcome(b []byte, o *outcome) []byte {
	if o.err != nil {
		return a.appendRefusal(b, o.err)
	}
	return appendStatus(b, o.job.ID.Key, o.current.contract.state(o.job.State))
}
