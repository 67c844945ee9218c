package simulate

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
)

// fakeForgeRun is a ForgeRun in memory: correct enough for the simulator, but for the one fault
// that it is given. It proves nothing about the real server.
type fakeForgeRun struct {
	fault   string
	stopped chan struct{}
	wg      sync.WaitGroup

	mu      sync.Mutex
	made    int
	clients map[string]*fakeClient // by key
	faulted bool
}

type fakeClient struct {
	id, secret string
	jobs       []*fakeForgeJob
	byKey      map[string]*fakeForgeJob
	hooks      []*fakeWebhook
}

type fakeWebhook struct {
	id, url, secret string
	deliveries      []*client.ForgeRunDelivery
}

type fakeForgeJob struct {
	client.ForgeRunJob
	owner    *fakeClient
	events   []client.ForgeRunEvent
	lines    map[string]chan func() // by URL: the deliveries, in order
	canceled chan struct{}
}

func newFakeForgeRun(fault string) *fakeForgeRun {
	return &fakeForgeRun{fault: fault, stopped: make(chan struct{}),
		clients: map[string]*fakeClient{}}
}

func (d *fakeForgeRun) stop() {
	close(d.stopped)
	d.wg.Wait()
}

// faultOnce reports true once, if the server has the named fault.
func (d *fakeForgeRun) faultOnce(fault string) bool {
	if d.fault != fault || d.faulted {
		return false
	}
	d.faulted = true
	return true
}

func (d *fakeForgeRun) id(kind string) string {
	d.made++
	return fmt.Sprintf("%s-%d", kind, d.made)
}

func (d *fakeForgeRun) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	c := d.clients[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	var body struct {
		Type, URL, Callback string
		Kind                client.ForgeRunWorkKind `json:"work_kind"`
		Key                 string                  `json:"idempotency_key"`
		ExecutionAt         *time.Time              `json:"execution_at"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch what := r.Method + " " + path[0] + strings.Repeat("/", len(path)-1); {
	case what == "POST clients":
		forgeAnswerTo(w, 201, map[string]any{"client_id": d.id("c")})
	case what == "POST clients//":
		key, c := d.id("mr"), &fakeClient{id: path[1], secret: newFakeSecret(),
			byKey: map[string]*fakeForgeJob{}}
		d.clients[key] = c
		forgeAnswerTo(w, 201, map[string]any{"api_key": key, "key_id": key,
			"callback_secret": c.secret})
	case c == nil:
		forgeAnswerTo(w, 401, map[string]any{"code": client.ForgeRunCodeInvalidCredentials})
	case what == "POST webhooks":
		h := &fakeWebhook{id: d.id("w"), url: body.URL, secret: newFakeSecret()}
		c.hooks = append(c.hooks, h)
		forgeAnswerTo(w, 201, map[string]any{"webhook_id": h.id, "secret": h.secret})
	case what == "GET webhooks//":
		h := c.hooks[slices.IndexFunc(c.hooks, func(h *fakeWebhook) bool {
			return h.id == path[1]
		})]
		forgeAnswerTo(w, 200, map[string]any{"items": h.deliveries})
	case what == "POST jobs":
		if body.Kind == client.ForgeRunWorkPayloadInvalid && !d.faultOnce("accepts anything") {
			forgeAnswerTo(w, 400, map[string]any{"code": client.ForgeRunCodeValidationFailed})
			return
		}
		j := c.byKey[body.Key]
		if j == nil || d.faultOnce("forgets keys") {
			j = d.submit(c, body.Kind, body.Callback, body.ExecutionAt)
			c.byKey[body.Key] = j
		}
		forgeAnswerTo(w, 202, map[string]any{"job_id": j.ID, "state": client.ForgeRunStateCreated})
	case what == "GET jobs":
		jobs := slices.Clone(c.jobs)
		if len(jobs) > 0 && d.faultOnce("loses a job") {
			jobs = jobs[1:]
		}
		forgeAnswerTo(w, 200, map[string]any{"items": jobs})
	default:
		d.job(w, c, what, path)
	}
}

func (d *fakeForgeRun) job(w http.ResponseWriter, c *fakeClient, what string, path []string) {
	j := c.jobs[slices.IndexFunc(c.jobs, func(j *fakeForgeJob) bool { return j.ID == path[1] })]
	switch action := path[len(path)-1]; {
	case what == "GET jobs/":
		forgeAnswerTo(w, 200, j)
		return
	case action == "report":
		d.report(w, j)
		return
	case action == "cancel" && !j.State.Final():
		close(j.canceled)
		d.move(j, client.ForgeRunStateCanceled)
	case action == "retry" && (j.State != client.ForgeRunStateFailed || j.Attempt == 2):
		forgeAnswerTo(w, 409, map[string]any{"code": client.ForgeRunCodeConflict})
		return
	case action == "retry":
		j.Attempt++
		j.Failure = nil
		d.move(j, client.ForgeRunStateQueued)
		d.wg.Go(func() { d.run(j) })
	}
	forgeAnswerTo(w, 200, map[string]any{"job_id": j.ID, "state": j.State, "attempt": j.Attempt,
		"updated_at": j.UpdatedAt})
}

func (d *fakeForgeRun) report(w http.ResponseWriter, j *fakeForgeJob) {
	r := client.ForgeRunReport{JobID: j.ID, Outcome: j.Outcome, Events: j.events,
		FinishedAt: j.UpdatedAt}
	for _, e := range j.events {
		if e.Next == client.ForgeRunStateRunning {
			r.StartedAt, r.DurationMS = &e.At, j.UpdatedAt.Sub(e.At).Milliseconds()
		}
	}
	if len(j.events) > 3 && d.faultOnce("skips an event") {
		r.Events = slices.Delete(slices.Clone(r.Events), 1, 2)
	}
	forgeAnswerTo(w, 200, r)
}

func newFakeSecret() string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text()))
}

func forgeAnswerTo(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func (d *fakeForgeRun) submit(c *fakeClient, kind client.ForgeRunWorkKind, callback string,
	at *time.Time) *fakeForgeJob {
	k := kindNamed(kind)
	j := &fakeForgeJob{owner: c, lines: map[string]chan func(){}, canceled: make(chan struct{})}
	j.ForgeRunJob = client.ForgeRunJob{ID: d.id("j"), Kind: kind, Callback: callback,
		ExecutionAt: at,
		Definition: client.ForgeRunDefinition{Kind: kind, ShouldFail: k.fails,
			PayloadSize: k.payloadKB << 10}}
	c.jobs = append(c.jobs, j)
	d.move(j, client.ForgeRunStateCreated)
	j.CreatedAt = j.UpdatedAt
	d.wg.Go(func() { d.run(j) })
	return j
}

// run takes a job from where it is to its end.
func (d *fakeForgeRun) run(j *fakeForgeJob) {
	wait := time.Duration(0)
	if j.ExecutionAt != nil {
		wait = time.Until(*j.ExecutionAt)
	}
	steps := []client.ForgeRunState{client.ForgeRunStateQueued, client.ForgeRunStateAssigned,
		client.ForgeRunStateRunning,
		""}
	for _, next := range steps {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-j.canceled:
			return
		case <-d.stopped:
			return
		}
		d.mu.Lock()
		k := kindNamed(j.Kind)
		switch {
		case j.State.Final():
		case next == client.ForgeRunStateQueued &&
			j.State == client.ForgeRunStateQueued: // by a retry
		case next != "":
			d.move(j, next)
		case k.fails && (k.outcome == outcomeFailed || j.Attempt == 0):
			j.Failure = &client.ForgeRunFailure{Code: "failed", Retryable: true}
			if k.name == client.ForgeRunWorkRunsOverTimeout {
				j.Failure.Code = client.ForgeRunCodeTimeout
			}
			d.move(j, client.ForgeRunStateFailed)
		default:
			d.move(j, client.ForgeRunStateSucceeded)
		}
		d.mu.Unlock()
		if wait = 5 * time.Millisecond; next == client.ForgeRunStateRunning &&
			j.Kind == client.ForgeRunWorkCancelDuringRun {
			wait = time.Minute
		}
	}
}

// move changes a job and queues the deliveries of its event. The caller holds the lock.
func (d *fakeForgeRun) move(j *fakeForgeJob, next client.ForgeRunState) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if !now.After(j.UpdatedAt) {
		now = j.UpdatedAt.Add(time.Microsecond)
	}
	e := client.ForgeRunEvent{ID: d.id("e"), JobID: j.ID,
		Name: transitions[[2]client.ForgeRunState{j.State, next}], Prev: j.State, Next: next,
		At: now, Scenario: j.Kind, Final: j.Attempt == 2}
	if j.Failure != nil && j.Failure.Code == client.ForgeRunCodeTimeout {
		e.Reason = "timeout"
	}
	if next == client.ForgeRunStateSucceeded && d.faultOnce("loses a run") {
		e.Next, e.Name, e.Reason = client.ForgeRunStateFailed, client.ForgeRunEventJobFailed,
			runnerLost
		j.Failure = &client.ForgeRunFailure{Code: runnerLost}
		next = client.ForgeRunStateFailed
	}
	j.State, j.Outcome, j.UpdatedAt = next, outcomeOf[next], now
	j.events = append(j.events, e)
	for _, h := range j.owner.hooks {
		delivery := &client.ForgeRunDelivery{ID: d.id("d"), EventID: e.ID, EventName: e.Name,
			URL: h.url, Status: client.ForgeRunDeliveryPending}
		h.deliveries = append(h.deliveries, delivery)
		d.queueDelivery(j, e, h.url, h.secret, delivery)
	}
	if j.Callback != "" {
		d.queueDelivery(j, e, j.Callback, j.owner.secret, &client.ForgeRunDelivery{})
	}
}

// queueDelivery queues a delivery behind the earlier ones of the job at the URL.
func (d *fakeForgeRun) queueDelivery(j *fakeForgeJob, e client.ForgeRunEvent, url, secret string,
	delivery *client.ForgeRunDelivery) {
	line := j.lines[url]
	if line == nil {
		line = make(chan func(), 100)
		j.lines[url] = line
		d.wg.Go(func() {
			for {
				select {
				case deliver := <-line:
					deliver()
				case <-d.stopped:
					return
				}
			}
		})
	}
	forged := d.faultOnce("forges a signature")
	skip := e.Next == client.ForgeRunStateRunning && d.faultOnce("keeps an event back")
	send := func() { d.deliver(e, url, secret, delivery, forged) }
	if skip {
		send = func() {}
	}
	line <- send
}

func (d *fakeForgeRun) deliver(e client.ForgeRunEvent, url, secret string,
	delivery *client.ForgeRunDelivery, forged bool) {
	body, _ := json.Marshal(client.ForgeRunWebhookEvent{EventID: e.ID, JobID: e.JobID, Name: e.Name,
		Prev: e.Prev, Next: e.Next,
		OccurredAt: e.At, Scenario: e.Scenario, Reason: e.Reason, Final: e.Final})
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	receiver := &http.Client{Timeout: 3 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	status := client.ForgeRunDeliveryExhausted
	for range 4 {
		stamp := strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", e.ID, stamp, body)
		if forged {
			mac.Write([]byte("x"))
		}
		req, _ := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
		req.Header = http.Header{"Webhook-Id": {e.ID}, "Webhook-Timestamp": {stamp},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))}}
		resp, err := receiver.Do(req)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			status = client.ForgeRunDeliveryDelivered
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delivery.Status = status
}
