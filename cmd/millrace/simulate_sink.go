package main

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
)

// simSpoil is what receivers do besides their manner: the share of first tries that even a sound one turns down, each
// between 0 and 1.
type simSpoil struct {
	refuse float64       // drop the connection
	stall  float64       // never answer
	fail   float64       // answer 503
	slow   time.Duration // how long the slow receiver takes
}

// simSink receives webhooks: one listener for each manner, so that one manner's troubles are not another's. It accepts,
// stalls and fails as the manners say, and keeps what came.
type simSink struct {
	now    func() time.Time
	spoil  simSpoil
	heard  func(client.ForgeRunNotice) // of genuine events, whatever is answered
	ends   context.Context
	close  context.CancelFunc
	bases  map[simManner]string
	server []*http.Server
	all    sync.WaitGroup

	mu      sync.Mutex
	random  *rand.Rand
	hooks   map[string]*simHook // by path
	unknown int                 // requests to paths that nobody registered
	came    int                 // requests
}

func newSink(host string, now func() time.Time, spoil simSpoil, random *rand.Rand, heard func(client.ForgeRunNotice)) (*simSink, error) {
	s := &simSink{now: now, spoil: spoil, heard: heard, random: random, bases: map[simManner]string{}, hooks: map[string]*simHook{}}
	s.ends, s.close = context.WithCancel(context.Background())
	for manner := simSound; manner <= simNever; manner++ {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			s.stop()
			return nil, unable("the webhook sink: %v", err)
		}
		server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			BaseContext: func(net.Listener) context.Context { return s.ends }}
		s.server, s.bases[manner] = append(s.server, server), "http://"+l.Addr().String()
		s.all.Go(func() { _ = server.Serve(l) })
	}
	return s, nil
}

// stop ends the sink and what still stalls in it.
func (s *simSink) stop() {
	s.close()
	for _, server := range s.server {
		_ = server.Close()
	}
	s.all.Wait()
}

// hook makes a listener; the path names it.
func (s *simSink) hook(path string, manner simManner, clientNumber int) *simHook {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &simHook{name: path, url: s.bases[manner] + path, client: clientNumber, manner: manner, receipts: map[string][]simReceipt{}}
	s.hooks[path] = h
	return h
}

// registered says under which id and with which secret the server knows a listener.
func (s *simSink) registered(h *simHook, webhookID string, secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.webhookID, h.secrets = webhookID, secrets
}

func (s *simSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return // cut off: the server died, and will come again
	}
	s.mu.Lock()
	h := s.hooks[r.URL.Path]
	s.came++
	if h == nil {
		s.unknown++
		s.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		return
	}
	secrets := h.secrets
	s.mu.Unlock()

	at := s.now()
	notice, forged := judge(secrets, r, body, at)
	s.mu.Lock()
	accept, act := s.decide(h, notice)
	h.receipts[notice.JobID] = append(h.receipts[notice.JobID], simReceipt{notice.EventID, at, accept, forged})
	s.mu.Unlock()
	if forged == "" {
		s.heard(notice)
	}
	act(w, r)
}

// judge verifies a request. What is forged is read all the same, for the account.
func judge(secrets []string, r *http.Request, body []byte, at time.Time) (client.ForgeRunNotice, string) {
	notice, err := client.VerifyWebhook(secrets, r.Header, body, at)
	switch {
	case errors.Is(err, client.ErrNotGenuine):
		return client.ForgeRunNotice{EventID: r.Header.Get("Webhook-Id")}, err.Error()
	case err != nil:
		return notice, err.Error()
	case notice.EventID != r.Header.Get("Webhook-Id"):
		return notice, "the body has another event id than webhook-id"
	case r.Method != http.MethodPost:
		return notice, "it came by " + r.Method
	}
	return notice, ""
}

// decide says whether a try is accepted and how it is answered; the caller holds the lock.
func (s *simSink) decide(h *simHook, n client.ForgeRunNotice) (accept bool, act http.HandlerFunc) {
	tries := 0
	for _, r := range h.receipts[n.JobID] {
		if r.eventID == n.EventID {
			tries++
		}
	}
	draw := s.random.Float64()
	switch {
	case h.manner == simNever:
		return false, answer(http.StatusInternalServerError)
	case h.manner == simSlow:
		return true, s.slowly
	case tries > 0:
		return true, answer(http.StatusOK)
	case h.manner == simFails:
		return false, answer([]int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[int(draw*3)])
	case h.manner == simStalls && draw < 0.3:
		return false, stalling
	case h.manner == simSound && draw < s.spoil.refuse:
		return false, dropping
	case h.manner == simSound && draw < s.spoil.refuse+s.spoil.stall:
		return false, stalling
	case h.manner == simSound && draw < s.spoil.refuse+s.spoil.stall+s.spoil.fail:
		return false, answer(http.StatusServiceUnavailable)
	}
	return true, answer(http.StatusOK)
}

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func (s *simSink) slowly(w http.ResponseWriter, r *http.Request) {
	late := time.NewTimer(s.spoil.slow)
	defer late.Stop()
	select {
	case <-late.C:
	case <-r.Context().Done():
	}
	w.WriteHeader(http.StatusOK)
}

// stalling waits until whoever asked gives up.
func stalling(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// dropping closes the connection without an answer.
func dropping(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// requests counts what came.
func (s *simSink) requests() (all, unknown int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came, s.unknown
}

// missing counts the events that a listener will still accept and has not. known are all events of its jobs.
func (s *simSink) missing(h *simHook, known map[string][]string) int {
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
