package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// sink is a webhook receiver, a record of its own beside the ledger. Until it is asked to behave it
// refuses some deliveries, redirects some, and lets some time out.
type sink struct {
	url    string
	server *http.Server
	secret string // set before the first event
	canary string // where it redirects some deliveries to

	mu      sync.Mutex
	random  *rand.Rand
	behaves bool
	all     []delivery
}

// delivery is one request to a sink.
type delivery struct {
	ID       string // webhook-id
	Job      string
	Prev     string
	Next     string
	Accepted bool
	Forged   bool // its signature is not one of the secret
}

// newSink starts a receiver, which draws its answers from the seed.
func newSink(seed uint64, canary string) (*sink, error) {
	s := &sink{canary: canary, random: rand.New(rand.NewPCG(seed, 2))}
	var err error
	s.server, s.url, err = serve(s)
	s.url += "/hook"
	return s, err
}

// ServeHTTP takes a delivery. It is recorded before it is answered, as a ledger would be.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off
	}
	var event struct {
		Job  string `json:"job_id"`
		Prev string `json:"prev_state"`
		Next string `json:"next_state"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status, stall := s.record(delivery{ID: r.Header.Get("webhook-id"), Job: event.Job,
		Prev: event.Prev, Next: event.Next, Forged: !s.isSigned(r.Header, body)})
	sleep(r.Context(), stall)
	w.Header().Set("Location", s.canary) // of a redirect alone
	w.WriteHeader(status)
}

// record draws what a delivery is answered, and records it.
func (s *sink) record(d delivery) (status int, stall time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status = http.StatusNoContent
	switch n := s.random.IntN(100); {
	case s.behaves:
	case n < 10:
		status = http.StatusServiceUnavailable
	case n < 12:
		stall = webhookTimeout * 3 / 2
	case n < 15:
		status = http.StatusTemporaryRedirect
	}
	d.Accepted = status == http.StatusNoContent
	s.all = append(s.all, d)
	return status, stall
}

// isSigned checks the signature by Standard Webhooks 1.0.
func (s *sink) isSigned(h http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "."))
	mac.Write(body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for one := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if hmac.Equal([]byte(one), []byte(want)) {
			return true
		}
	}
	return false
}

// behave has the sink accept everything from now on.
func (s *sink) behave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behaves = true
}

// received returns all deliveries so far.
func (s *sink) received() []delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]delivery(nil), s.all...)
}
