package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// taskFlowKeys are the settings of TaskFlow, except for those of its queues.
var taskFlowKeys = []key{
	{"taskflow.listen", "", "Address of a listener for TaskFlow alone; the common one when empty.",
		func(s *Settings) value { return addressValue{p: &s.TaskFlow.Listen, optional: true} }},
	{"taskflow.token", "", "Token that TaskFlow clients send; open on loopback when empty.",
		func(s *Settings) value { return secretValue{&s.TaskFlow.Token} }},
	{"taskflow.max_concurrent", "10",
		"TaskFlow jobs that run at a time, over all queues and nodes.",
		func(s *Settings) value { return intValue{&s.TaskFlow.MaxConcurrent, 1, 1_000_000} }},
	{"taskflow.lease", "60s",
		"Time without a heartbeat after which a TaskFlow job's worker is taken for dead.",
		func(s *Settings) value {
			return durationValue{&s.TaskFlow.Lease, 100 * time.Millisecond, 24 * time.Hour}
		}},
}

// workerKeys are the settings of the worker API.
var workerKeys = []key{
	{"worker.token", "",
		"Token that workers outside the server send; open on loopback when empty, needed elsewhere.",
		func(s *Settings) value { return secretValue{&s.Worker.Token} }},
}

// The handlers that a queue of TaskFlow may have.
const (
	HandlerNone     = "none"
	HandlerHTTP     = "http"
	HandlerSimulate = "simulate"
)

const queuesSection = "taskflow.queues"

// queueSection declares the settings of single queues (G-TF-37).
var queueSection = &namedSection{section: queuesSection, valid: validQueue,
	validNames: "1 to 64 letters, digits and underscores",
	names:      func(s *Settings) []string { return sortedNames(s.TaskFlow.Queues) },
	members: []member{
		{"handler", "Who runs the queue's jobs: http (the server calls url), simulate, or none " +
			"but workers.",
			func(s *Settings, name string) value {
				return choiceValue{&s.TaskFlow.queue(name).Handler,
					[]string{HandlerNone, HandlerHTTP, HandlerSimulate}}
			}},
		{"url", "Where the handler http sends the payloads of the queue's jobs.",
			func(s *Settings, name string) value { return urlValue{&s.TaskFlow.queue(name).URL} }},
		{"secret", "Secret (whsec_ and base64) that the requests of the handler http are signed " +
			"with; unsigned when empty.",
			func(s *Settings, name string) value {
				return signingValue{&s.TaskFlow.queue(name).Secret}
			}},
		{"timeout", "Time that url has to answer.",
			func(s *Settings, name string) value {
				return durationValue{&s.TaskFlow.queue(name).Timeout, 100 * time.Millisecond,
					time.Hour}
			}},
		{"max_concurrent",
			"The queue's jobs that run at a time, over all nodes; 0 is no limit of its own.",
			func(s *Settings, name string) value {
				return intValue{&s.TaskFlow.queue(name).MaxConcurrent, 0, 1_000_000}
			}},
	}}

// validQueue reports whether a text can be the name of a queue (TF-003).
func validQueue(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, nameLetters) == ""
}

// queue returns the settings of a queue, and creates them with the defaults.
func (t *TaskFlow) queue(name string) *TaskFlowQueue {
	if t.Queues == nil {
		t.Queues = map[string]*TaskFlowQueue{}
	}
	if t.Queues[name] == nil {
		t.Queues[name] = &TaskFlowQueue{Handler: HandlerNone, Timeout: 30 * time.Second}
	}
	return t.Queues[name]
}

// checkQueues is the rule that url and secret belong to the handler http, which requires url.
func (s *Settings) checkQueues(valid func(...string) bool) []Problem {
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(s.TaskFlow.Queues)) {
		q, at := s.TaskFlow.Queues[name], queuesSection+"."+name+"."
		if !valid(at+"handler", at+"url", at+"secret") {
			continue
		}
		handler := fmt.Sprintf("%q is %s (%s)", at+"handler", q.Handler, s.origin(at+"handler"))
		if q.Handler == HandlerHTTP && q.URL == "" {
			problems = append(problems, Problem{Key: at + "url", Origin: s.origin(at + "url"),
				Text: fmt.Sprintf("%q is missing: %s", at+"url", handler)})
		}
		for _, member := range []struct {
			name string
			set  bool
		}{{"url", q.URL != ""}, {"secret", !q.Secret.Empty()}} {
			if !member.set || q.Handler == HandlerHTTP {
				continue
			}
			key := at + member.name
			problems = append(problems, Problem{Key: key, Origin: s.origin(key),
				Text: fmt.Sprintf("%q (%s) is for the handler http, and %s", key,
					s.origin(key), handler)})
		}
	}
	return problems
}

// checkWorkers is the security rule of the worker API on the common listener: beyond loopback it
// has a token, which does not travel unencrypted (G-X-20). Without TaskFlow the API is not served
// instead; see ServesWorkers.
func (s *Settings) checkWorkers(problems []Problem) []Problem {
	if IsLoopback(s.Listen) || !s.servesRemoteJobs() {
		return problems
	}
	if s.missesWorkerToken() {
		return append(problems, Problem{Key: "worker.token", Origin: s.origin("worker.token"),
			Text: fmt.Sprintf(`"worker.token" is missing: "listen" (%s), %s, is not loopback, and the worker API is served there with taskflow`,
				s.origin("listen"), quote(s.Listen))})
	}
	if s.Worker.Token.Empty() || hasProblem(problems, "listen") || s.TLS.Enabled() ||
		s.TrustedNetwork {
		return problems
	}
	return append(problems, Problem{Key: "listen", Origin: s.origin("listen"),
		Text: fmt.Sprintf(`"listen" (%s): %s is not loopback and serves the worker API, whose token would travel in the clear; %s; `+
			"or listen on 127.0.0.1", s.origin("listen"), quote(s.Listen), encryptionHint)})
}

// missesWorkerToken reports whether the worker API must be served and lacks its token.
func (s *Settings) missesWorkerToken() bool {
	return s.Serves("taskflow") && s.Worker.Token.Empty()
}

// servesRemoteJobs reports whether a contract with remote workers is served.
func (s *Settings) servesRemoteJobs() bool {
	return slices.ContainsFunc([]string{"forgerun", "images", "taskflow", "fetchbox"}, s.Serves)
}

// ServesWorkers reports whether the worker API is served: there are jobs for remote workers, and
// beyond loopback it has a token.
func (s Settings) ServesWorkers() bool {
	return s.servesRemoteJobs() && (IsLoopback(s.Listen) || !s.Worker.Token.Empty())
}

// signingValue is a signing secret in the form of Standard Webhooks, or empty.
type signingValue struct{ p *Secret }

func (v signingValue) set(in input) error {
	s, ok := in.textValue()
	encoded, prefixed := strings.CutPrefix(s, "whsec_")
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || (s != "" && (!prefixed || err != nil || strings.ContainsAny(s, "\r\n") ||
		len(plain) < 24 || len(plain) > 64)) {
		return errors.New("expected whsec_ and the base64 of 24 to 64 bytes")
	}
	*v.p = NewSecret(s)
	return nil
}

func (v signingValue) show() string { return v.p.String() }
