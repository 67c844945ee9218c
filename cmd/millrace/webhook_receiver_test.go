package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fault is what a receiver does with a request instead of accepting it: a status, or one of these.
type fault int

const (
	accepts fault = 0
	stalls  fault = -1 // until the sender gives up
	refuses fault = -2 // closes the connection without an answer
)

// hookReceiver is a receiver of webhooks that keeps what has come of each job, and watches their
// order: the next event of a job comes after the one before it was accepted.
type hookReceiver struct {
	*httptest.Server
	name string
	// fault says what happens to request n, counted from 0, which is the first of its event or not.
	fault func(n int, isFirst bool) fault

	mu       sync.Mutex // guards what follows
	requests int
	faults   int                  // requests that were not accepted
	repeats  int                  // requests with an event that had come before
	came     map[string][]arrival // by job, see jobOf
	numbers  map[string]string    // jobOf by contract and id
	wrong    []string
}

// arrival is an event that has come.
type arrival struct {
	id, name string
	accepted bool
}

// newHookReceiver starts a receiver.
func newHookReceiver(t *testing.T, name string, fault func(int, bool) fault) *hookReceiver {
	r := &hookReceiver{name: name, fault: fault, came: map[string][]arrival{},
		numbers: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// hookBody is what is read of an event of operators and of callbacks, and of one of ForgeRun.
type hookBody struct {
	Type string
	Data struct {
		Number       int64
		Contract, ID string
	}
	Name    string `json:"event_name"`
	JobID   string `json:"job_id"`
	EventID string `json:"event_id"`
}

// ServeHTTP takes an event.
func (r *hookReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(req.Body)
	var body hookBody
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	switch f := r.take(&body, req.Header.Get("webhook-id"), err); f {
	case accepts:
	case stalls:
		<-req.Context().Done()
	case refuses:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(int(f))
	}
}

// take records an event and decides what happens to it.
func (r *hookReceiver) take(body *hookBody, id string, err error) fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, name := cmp.Or(body.JobID, strconv.FormatInt(body.Data.Number, 10)),
		cmp.Or(body.Name, body.Type)
	r.numbers[body.Data.Contract+" "+body.Data.ID] = job
	came := r.came[job]
	last := len(came) - 1
	isFirst := last < 0 || came[last].id != id
	switch {
	case err != nil || name == "" || id == "" || (body.EventID != "" && body.EventID != id):
		r.wrong = append(r.wrong, fmt.Sprintf("a request is %+v with the id %s, %v", body, id, err))
	case isFirst && last >= 0 && !came[last].accepted:
		r.wrong = append(r.wrong, fmt.Sprintf("job %s: %s came before %s was accepted", job, name,
			came[last].name))
	case isFirst:
		for _, earlier := range came {
			if earlier.id == id {
				r.wrong = append(r.wrong, fmt.Sprintf("job %s: %s came again after %s", job, name,
					came[last].name))
			}
		}
		came = append(came, arrival{id: id, name: name})
		last++
	case came[last].name != name:
		r.wrong = append(r.wrong, fmt.Sprintf("job %s: %s and %s have one id", job, name,
			came[last].name))
	}
	f := r.fault(r.requests, isFirst)
	r.requests++
	if f != accepts {
		r.faults++
	}
	if !isFirst {
		r.repeats++
	}
	if f == accepts && last >= 0 {
		came[last].accepted = true
	}
	r.came[job] = came
	return f
}

// of returns the events of a job that were accepted, in order.
func (r *hookReceiver) of(job string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, a := range r.came[job] {
		if a.accepted {
			names = append(names, a.name)
		}
	}
	return strings.Join(names, " ")
}

// jobOf returns what of takes for the job of a contract with an id; "" is one that has no event.
func (r *hookReceiver) jobOf(contract, id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.numbers[contract+" "+id]
}

// check reports what was wrong, and how much has come. A receiver that was to be faulty, and has
// refused nothing or got nothing again, has met no danger.
func (r *hookReceiver) check(t *testing.T, isFaulty bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := 0
	for _, came := range r.came {
		events += len(came)
	}
	t.Logf("%s: %d requests with %d events of %d jobs; %d refused, %d that came again", r.name,
		r.requests, events, len(r.came), r.faults, r.repeats)
	if isFaulty && (r.faults == 0 || r.repeats == 0) {
		t.Errorf("WH-004 %s has not met its danger", r.name)
	}
	for _, text := range r.wrong {
		t.Errorf("WH-004 %s: %s", r.name, text)
	}
}
