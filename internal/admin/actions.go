package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Operators change jobs by the verbs of the contract of each job, which says itself what it allows
// (contract.Operator). The entry of the audit is attached to the change (engine.WithTxFunc), so
// both are stored or neither is.

// actionRoutes are the routes of the actions, one row for each, and of submissions.
func (a *API) actionRoutes() []route {
	all := []route{{method: "POST", pattern: apiPrefix + "/jobs", action: "job.submit",
		handle: a.submitJob, target: FixedTarget("jobs"), body: true}}
	for _, name := range contract.Actions {
		all = append(all, route{method: "POST", pattern: apiPrefix + "/jobs/{number}/" + name,
			action: "job." + name, target: jobTarget, body: true,
			handle: func(c *httpapi.Call) error { return a.actOnJob(c, name) }})
	}
	return all
}

// jobTarget names the job of the path for the audit.
func jobTarget(c *httpapi.Call) string { return "job:" + c.PathValue("number") }

// errJobNotFound answers a number that no job has.
var errJobNotFound = &job.Error{Kind: job.NotFound, Op: "admin.job", Msg: "there is no such job"}

// PathJob loads the job of the path, with no body but the definition.
func (a *API) PathJob(c *httpapi.Call) (*job.Job, error) {
	number, err := pathNumber(c)
	if err != nil {
		return nil, err
	}
	found, err := a.Engine.GetBySeqs(c.Context(), []int64{number}, store.DefinitionOnly)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errJobNotFound
	}
	return found[0], nil
}

// jobToActOn loads the job of the path for an action. One that is gone is as its latest dead letter
// has it, and allows nothing when that was replayed.
func (a *API) jobToActOn(c *httpapi.Call, name string) (*job.Job, error) {
	j, err := a.PathJob(c)
	number, isNumber := parsePathNumber(c.PathValue("number"))
	if !job.IsKind(err, job.NotFound) || !isNumber {
		return j, err
	}
	j, deadLetters, err := a.Engine.GetWithDeadLetters(c.Context(), number)
	switch {
	case job.IsKind(err, job.NotFound):
		return nil, errJobNotFound
	case err != nil:
		return nil, err
	case j.State == job.StateNone && !deadLetters[len(deadLetters)-1].IsOpen():
		refused := &contract.NotAllowed{Action: name, State: contract.StateGone}
		return nil, &httpapi.CodedError{Code: codeNotAllowed, Detail: refused.Error()}
	}
	return j, nil
}

// pathNumber returns the number of the path.
func pathNumber(c *httpapi.Call) (int64, error) {
	number, ok := parsePathNumber(c.PathValue("number"))
	if !ok {
		return 0, errJobNotFound
	}
	return number, nil
}

// parsePathNumber reads a number of a path. It takes no sign and no leading zeros, so that the
// audit has one name for what the number stands for.
func parsePathNumber(text string) (int64, bool) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, false
	}
	return number, number > 0 && strconv.FormatInt(number, 10) == text
}

// operatorOf returns what operators may do with the jobs of a job type.
func (a *API) operatorOf(jobType string) *contract.Operator {
	return contract.OperatorOf(a.Contracts, jobType)
}

// actOnJob is POST /admin/v1/jobs/{number}/{action}: it answers the job as it is then, or the new
// job that was made (AD-016).
func (a *API) actOnJob(c *httpapi.Call, name string) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	number, after, err := a.Act(c, name)
	if err != nil {
		return err
	}
	return a.sendJob(c, http.StatusOK, number, after)
}

// Act carries out an action on the job of the path of a call. It returns its number and the job as
// it is then, or the one that was made of it.
func (a *API) Act(c *httpapi.Call, name string) (number int64, after *job.Job, err error) {
	j, err := a.jobToActOn(c, name)
	if err != nil {
		return 0, nil, err
	}
	o := a.operatorOf(j.ID.JobType)
	after, err = o.Act(a.withAudit(c, jobTarget(c)), a.Engine, name, j)
	if err != nil {
		return 0, nil, translateError(o, err)
	}
	return j.Seq, after, nil
}

// withAudit returns the context of a change that writes its entry of the audit with the job before
// and after it. target "" is the job that the change makes.
func (a *API) withAudit(c *httpapi.Call, target string) context.Context {
	return engine.WithTxFunc(c.Context(), func(w engine.RecordWriter, before,
		after *job.Job) error {
		e := newEntry(c, a.routeOf(c))
		e.Target = target
		if target == "" {
			e.Target = "job:" + strconv.FormatInt(after.Seq, 10)
		}
		var err error
		if e.Before, err = encodeState(a.stateOf(before)); err != nil {
			return err
		}
		if e.After, err = encodeState(a.stateOf(after)); err != nil {
			return err
		}
		return a.audit.write(w, e)
	})
}

// stateOf returns what the audit keeps of a job, in the words that clients know; nil for one that
// is not stored.
func (a *API) stateOf(j *job.Job) any {
	if j == nil || j.State == job.StateNone {
		return nil
	}
	return struct {
		Number   int64  `json:"number"`
		Contract string `json:"contract"`
		ID       string `json:"id"`
		State    string `json:"state"`
	}{j.Seq, contract.PublicName(j.ID.JobType), j.ID.Key, a.operatorOf(j.ID.JobType).StateOf(j)}
}

// sendJob answers with a job after an action on the one with the number. One that is gone is
// answered as it was, in the state "gone".
func (a *API) sendJob(c *httpapi.Call, status int, number int64, j *job.Job) error {
	found, err := a.Engine.GetBySeqs(c.Context(), []int64{j.Seq}, store.FailureOnly)
	if err != nil {
		return err
	}
	if len(found) > 0 { // with the failure
		j = found[0]
	}
	items, err := a.JobItems(c.Context(), []*job.Job{j})
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 1024))
	items[0].Write(&o, bool(a.disclosureTo(c)))
	if j.Seq != number && number > 0 {
		o.Int("made_from", number)
	} else {
		o.Null("made_from")
	}
	var actions []string // none of a job that is gone
	if j.State != job.StateNone {
		actions = a.operatorOf(j.ID.JobType).Allowed(j)
	}
	o.Texts("actions", actions)
	sendObject(c, status, &o)
	return nil
}

// translateError turns an error of a contract into one of this API: with its own words, and the
// code that fits the status with which the contract's routes would answer it.
func translateError(o *contract.Operator, err error) error {
	var refused *contract.NotAllowed
	if errors.As(err, &refused) {
		return &httpapi.CodedError{Code: codeNotAllowed, Detail: refused.Error()}
	}
	answer := o.Answer(err)
	switch {
	case answer.Status >= http.StatusInternalServerError,
		answer.Status == http.StatusTooManyRequests, job.IsKind(err, job.NotFound):
		return err
	case answer.Status == http.StatusConflict || answer.Status == http.StatusGone ||
		answer.Status == http.StatusNotFound:
		return &httpapi.CodedError{Code: codeConflict, Detail: answer.Detail, Err: err}
	}
	return &httpapi.CodedError{Code: codeInvalid, Detail: answer.Detail, Err: err}
}

// submission is the body of a submission.
type submission struct {
	contract string
	contract.Request
}

// readSubmission reads {contract, request, owner, job_type, callback_url, idempotency_key}.
func readSubmission(c *httpapi.Call) (s submission, err error) {
	body, err := readMembers(c, "contract", "request", "owner", "job_type", "callback_url",
		"idempotency_key")
	if err != nil {
		return s, err
	}
	texts := map[string]*string{"contract": &s.contract, "owner": &s.Owner, "job_type": &s.Type,
		"callback_url": &s.Callback, "idempotency_key": &s.Key}
	for name, value := range strictjson.Members(body) {
		if string(name) == "request" {
			s.Body = value
			continue
		}
		if *texts[string(name)], err = strictjson.String(value); err != nil {
			return s, invalid(string(name) + " must be a string: " + err.Error())
		}
	}
	switch {
	case s.contract == "":
		return s, invalid("contract is required")
	case strictjson.KindOf(s.Body) != strictjson.KindObject:
		return s, invalid("request must be the JSON object that the contract's own route takes")
	}
	return s, nil
}

// submitJob is POST /admin/v1/jobs: it stores what the contract's own route would store (AD-017).
func (a *API) submitJob(c *httpapi.Call) error {
	s, err := readSubmission(c)
	if err != nil {
		return err
	}
	o, err := contract.SubmitterOf(a.Contracts, s.contract, &s.Request)
	if err != nil {
		return err
	}
	j, err := o.Submit(a.withAudit(c, ""), s.Request)
	if err != nil {
		return translateError(o, err)
	}
	return a.sendJob(c, http.StatusCreated, 0, j)
}
