package taskflow

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Settings are the settings of TaskFlow.
type Settings struct {
	Listen        string            // empty: the common listener
	Token         setting.Secret    // empty: no authentication, on loopback only (G-TF-28)
	MaxConcurrent int               // jobs RUNNING at a time, over all nodes (TF-059)
	Lease         time.Duration     // how long a claimed job stays leased without a heartbeat
	Queues        map[string]*Queue // settings of single queues (G-TF-37)
}

// Group declares the settings. Jobs of queues without a handler wait for remote workers.
func (s *Settings) Group() *setting.Group {
	return &setting.Group{Name: Name, Listen: &s.Listen, Token: &s.Token,
		Workers: setting.RequiredWorkers, Check: s.checkQueues,
		Keys: []setting.Key{
			setting.ListenKey(Name, "TaskFlow", &s.Listen),
			setting.TokenKey(Name, "TaskFlow", &s.Token),
			setting.Define("taskflow.max_concurrent", "10",
				"Most TaskFlow jobs that run at a time, over all queues and nodes.",
				setting.Int(&s.MaxConcurrent, 1, 1_000_000)),
			setting.Define("taskflow.lease", "60s",
				"Time without a heartbeat after which the lease of a TaskFlow job expires.",
				setting.Duration(&s.Lease, 100*time.Millisecond, 24*time.Hour)),
		},
		Sections: []setting.Section{{
			Name:       queuesSection,
			Valid:      validQueueName,
			ValidNames: "1 to 64 letters, digits and underscores",
			Items:      setting.ItemsOf(&s.Queues, newQueue, (*Queue).keys),
		}},
	}
}

// The handlers of queues.
const (
	handlerNone     = "none"
	handlerHTTP     = "http"
	handlerSimulate = "simulate"
)

// Queue holds the settings of one queue.
type Queue struct {
	Handler       string         // http or simulate; anything else is none
	URL           string         // of the handler http, as are the next two
	Secret        setting.Secret // signs the requests; empty: they are not signed
	Timeout       time.Duration  // of one request
	MaxConcurrent int            // over all nodes, 0: no limit of its own (G-TF-25)
	Rate          job.Rate       // of starts, over all nodes; zero: none (AD-032)
}

const queuesSection = "taskflow.queues"

// validQueueName reports whether a text can be the name of a queue (TF-003).
func validQueueName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, setting.Letters) == ""
}

// newQueue returns the settings of a queue that is named in the configuration, with their
// defaults.
func newQueue() *Queue { return &Queue{Handler: handlerNone, Timeout: 30 * time.Second} }

// keys declares the settings of one queue, below taskflow.queues.NAME.
func (q *Queue) keys() []setting.Key {
	return []setting.Key{
		setting.Define("handler", "",
			"Handler of the jobs: http (the server calls url) or simulate; remote workers run them when empty.",
			setting.Choice(&q.Handler, handlerNone, handlerHTTP, handlerSimulate)),
		setting.Define("url", "",
			"URL to which the handler http sends the payloads of the jobs.",
			setting.URL(&q.URL)),
		setting.Define("secret", "",
			"Secret (whsec_ and base64) that signs the requests of the handler http; unsigned when empty.",
			signingSecret(&q.Secret)),
		setting.Define("timeout", "", "Time limit of a request to url.",
			setting.Duration(&q.Timeout, 100*time.Millisecond, time.Hour)),
		setting.Define("max_concurrent", "",
			"Most jobs of the queue that run at a time, over all nodes; 0 is no limit of the queue.",
			setting.Int(&q.MaxConcurrent, 0, 1_000_000)),
		contract.RateKey(&q.Rate),
	}
}

// signingSecret is a secret in the form of Standard Webhooks, or empty.
func signingSecret(p *setting.Secret) setting.Value {
	return setting.SecretText(p, "whsec_ and the base64 of 24 to 64 bytes", func(s string) bool {
		encoded, prefixed := strings.CutPrefix(s, "whsec_")
		plain, err := base64.StdEncoding.DecodeString(encoded)
		if s == "" || err != nil {
			return s == ""
		}
		return prefixed && !strings.ContainsAny(s, "\r\n") && len(plain) >= 24 &&
			len(plain) <= 64
	})
}

// checkQueues is the rule that url and secret belong to the handler http, which requires url. With
// another handler they would be ignored, and requests that an operator expects never sent. The
// queues are checked in the order of their names, so the same errors come in the same order.
func (s *Settings) checkQueues(c *setting.Checker) {
	for _, name := range slices.Sorted(maps.Keys(s.Queues)) {
		q, at := s.Queues[name], queuesSection+"."+name+"."
		if !c.Valid(at+"handler", at+"url", at+"secret") {
			continue
		}
		handler := fmt.Sprintf("%q is %s (%s)", at+"handler", q.Handler, c.Origin(at+"handler"))
		if q.Handler == handlerHTTP && q.URL == "" {
			c.Report(at+"url", fmt.Sprintf("%q is missing: %s", at+"url", handler))
		}
		for _, member := range []struct {
			name string
			set  bool
		}{{"url", q.URL != ""}, {"secret", !q.Secret.Empty()}} {
			if member.set && q.Handler != handlerHTTP {
				key := at + member.name
				c.Report(key, fmt.Sprintf("%q (%s) is for the handler http, and %s", key,
					c.Origin(key), handler))
			}
		}
	}
}
