package simulate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
)

// A receiver of webhooks behaves well or badly, as the work kinds of ForgeRun ask for. The sink has
// one HTTP server for each behavior and one path for each receiver. It verifies the signature of
// each request, decides by the behavior and the faults of the flags how to answer, and records the
// request with the decision. Genuine events also move the simulation on: scenarios wait for the
// states of their jobs, which arrive here first.

// sinkFaults are faults of receivers that accept: the shares of events, each between 0 and 1, whose
// first request they do not accept.
type sinkFaults struct {
	// drop is the share whose connection is dropped.
	drop float64
	// stall is the share whose request is never answered.
	stall float64
	// fail is the share that is answered 503.
	fail float64
	// slow is how long receivers of behaviorSlow take to answer.
	slow time.Duration
}

// webhookSink receives webhooks and records them. It has a listener for each behavior, so that the
// faults of one behavior do not delay deliveries to receivers of another.
type webhookSink struct {
	now    func() time.Time
	faults sinkFaults
	// onEvent is called for each genuine request.
	onEvent func(client.ForgeRunWebhookEvent)
	// ctx ends with stop.
	ctx   context.Context
	close context.CancelFunc
	// bases are the URLs of the listeners.
	bases   map[receiverBehavior]string
	servers []*http.Server
	wg      sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	// receivers are by path.
	receivers map[string]*receiver
	// unknownRequests counts requests to other paths.
	unknownRequests int
	// requestCount counts all requests.
	requestCount int
}

// newSink makes a sink that listens on ports of the host. onEvent is called concurrently. It fails
// if the host is no address of this machine. The caller must stop the sink.
func newSink(host string, now func() time.Time, faults sinkFaults, random *rand.Rand,
	onEvent func(client.ForgeRunWebhookEvent)) (*webhookSink, error) {
	s := &webhookSink{now: now, faults: faults, onEvent: onEvent, random: random,
		bases: map[receiverBehavior]string{}, receivers: map[string]*receiver{}}
	s.ctx, s.close = context.WithCancel(context.Background())
	for behavior := behaviorAccepts; behavior <= behaviorNeverAccepts; behavior++ {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			s.stop()
			return nil, cli.UnableError("the webhook sink: %v", err)
		}
		server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
			ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			BaseContext: func(net.Listener) context.Context { return s.ctx }}
		s.servers, s.bases[behavior] = append(s.servers, server), "http://"+l.Addr().String()
		s.wg.Go(func() { _ = server.Serve(l) })
	}
	return s, nil
}

// stop closes the listeners and ends the requests that are still held. It may be called more than
// once.
func (s *webhookSink) stop() {
	s.close()
	for _, server := range s.servers {
		_ = server.Close()
	}
	s.wg.Wait()
}

// addReceiver makes a receiver at the path, on the listener of the behavior.
func (s *webhookSink) addReceiver(path string, behavior receiverBehavior,
	clientNumber int) *receiver {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &receiver{name: path, url: s.bases[behavior] + path, client: clientNumber,
		behavior: behavior, receipts: map[string][]webhookReceipt{}}
	s.receivers[path] = h
	return h
}

// setRegistered records the id and the secrets that the server gave a receiver. Requests that came
// before it cannot be verified; none do, as the client has no job yet.
func (s *webhookSink) setRegistered(h *receiver, webhookID string, secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.webhookID, h.secrets = webhookID, secrets
}

// ServeHTTP records a request and answers it as its receiver does. The record is written before the
// answer: an event that the server takes for delivered is always recorded as accepted.
func (s *webhookSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return // the server died in the middle of the request, and will repeat it
	}
	s.mu.Lock()
	h := s.receivers[r.URL.Path]
	s.requestCount++
	if h == nil {
		s.unknownRequests++
		s.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		return
	}
	secrets := h.secrets
	s.mu.Unlock()

	at := s.now()
	notice, invalid := verifyRequest(secrets, r, body, at)
	s.mu.Lock()
	accept, act := s.decide(h, notice)
	h.receipts[notice.JobID] = append(h.receipts[notice.JobID],
		webhookReceipt{notice.EventID, at, accept, invalid})
	s.mu.Unlock()
	if invalid == "" {
		s.onEvent(notice)
	}
	act(w, r)
}

// verifyRequest verifies the signature and the form of a request. It returns why the request is not
// genuine, empty if it is, and its event as far as that can be read.
func verifyRequest(secrets []string, r *http.Request, body []byte,
	at time.Time) (client.ForgeRunWebhookEvent, string) {
	notice, err := client.VerifyWebhook(secrets, r.Header, body, at)
	switch {
	case errors.Is(err, client.ErrInvalidWebhook):
		return client.ForgeRunWebhookEvent{EventID: r.Header.Get("Webhook-Id")}, err.Error()
	case err != nil:
		return notice, err.Error()
	case notice.EventID != r.Header.Get("Webhook-Id"):
		return notice, "the body has another event id than webhook-id"
	case r.Method != http.MethodPost:
		return notice, "it came by " + r.Method
	}
	return notice, ""
}

// decide returns whether a request is accepted and the handler that answers it. The caller holds
// the lock. Only behaviorNeverAccepts refuses an event more than once; all other faults hit its
// first request, so that a retry is accepted.
func (s *webhookSink) decide(h *receiver, n client.ForgeRunWebhookEvent) (accept bool,
	act http.HandlerFunc) {
	earlier := 0 // requests of this event
	for _, r := range h.receipts[n.JobID] {
		if r.eventID == n.EventID {
			earlier++
		}
	}
	draw := s.random.Float64()
	switch {
	case h.behavior == behaviorNeverAccepts:
		return false, answerWith(http.StatusInternalServerError)
	case h.behavior == behaviorSlow:
		return true, s.answerSlowly
	case earlier > 0:
		return true, answerWith(http.StatusOK)
	case h.behavior == behaviorFails:
		return false, answerWith([]int{http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable}[int(draw*3)])
	case h.behavior == behaviorStalls && draw < 0.3:
		return false, stallRequest
	case h.behavior == behaviorAccepts && draw < s.faults.drop:
		return false, dropConnection
	case h.behavior == behaviorAccepts && draw < s.faults.drop+s.faults.stall:
		return false, stallRequest
	case h.behavior == behaviorAccepts && draw < s.faults.drop+s.faults.stall+s.faults.fail:
		return false, answerWith(http.StatusServiceUnavailable)
	}
	return true, answerWith(http.StatusOK)
}

// answerWith answers with a status and no body.
func answerWith(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// answerSlowly accepts after a while.
func (s *webhookSink) answerSlowly(w http.ResponseWriter, r *http.Request) {
	clock.Sleep(r.Context(), s.faults.slow)
	w.WriteHeader(http.StatusOK)
}

// stallRequest holds a request until the server gives up, and does not answer.
func stallRequest(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// dropConnection closes the connection without an answer.
func dropConnection(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// requests returns how many requests came, and how many of them to unknown paths.
func (s *webhookSink) requests() (all, unknown int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requestCount, s.unknownRequests
}

// missing counts the events that a receiver has not accepted. known holds all events of its jobs,
// by job.
func (s *webhookSink) missing(h *receiver, known map[string][]string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for jobID, events := range known {
		accepted := map[string]bool{}
		for _, r := range h.receipts[jobID] {
			accepted[r.eventID] = accepted[r.eventID] || r.accepted
		}
		for _, id := range events {
			if !accepted[id] {
				n++
			}
		}
	}
	return n
}
