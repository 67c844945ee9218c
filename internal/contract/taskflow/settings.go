package taskflow

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Settings are the settings of TaskFlow.
type Settings struct {
	Listen         string            // empty: the common listener
	Token          setting.Secret    // empty: no authentication, on loopback only (G-TF-28)
	CallbackSecret setting.Secret    // signs callbacks; empty: derived from the pepper
	MaxConcurrent  int               // jobs RUNNING at a time, over all nodes (TF-059)
	Lease          time.Duration     // how long a claimed job stays leased without a heartbeat
	Queues         map[string]*Queue // settings of single queues (G-TF-37)

	IdempotencyWindow time.Duration // how long an Idempotency-Key is remembered (RT-002)
}

// Group declares the settings. Jobs of queues without a handler wait for remote workers.
func (s *Settings) Group() *setting.Group {
	return &setting.Group{Name: Name, Listen: &s.Listen, Token: &s.Token,
		CallbackSecret: &s.CallbackSecret,
		Workers:        setting.RequiredWorkers, Check: s.checkQueues,
		Keys: []setting.Key{
			setting.ListenKey(Name, "TaskFlow", &s.Listen),
			setting.TokenKey(Name, "TaskFlow", &s.Token),
			setting.CallbackSecretKey(Name, "TaskFlow", &s.CallbackSecret),
			setting.Define("taskflow.max_concurrent", "10",
				"Maximum number of TaskFlow jobs that run at a time, over all queues and nodes.",
				setting.Int(&s.MaxConcurrent, 1, 1_000_000)),
			setting.Define("taskflow.lease", "60s",
				"Time without a heartbeat after which the lease of a TaskFlow job expires.",
				setting.Duration(&s.Lease, 100*time.Millisecond, 24*time.Hour)),
			setting.Define("taskflow.idempotency_window", "24h",
				"Time that the Idempotency-Key of a TaskFlow request is remembered.",
				setting.Duration(&s.IdempotencyWindow, time.Second, setting.TenYears)),
		},
		Sections: []setting.Section{{
			Name:       queuesSection,
			Valid:      validQueueName,
			ValidNames: "1 to 64 letters, digits and underscores",
			Items:      setting.ItemsOf(&s.Queues, newQueue, (*Queue).keys),
		}},
	}
}

// The handlers of queues, beside those of package external.
const (
	handlerNone     = "none"
	handlerSimulate = "simulate"
)

// Queue holds the settings of one queue.
type Queue struct {
	Handler           string   // exec, http or simulate; anything else is none
	external.Settings          // of the handlers exec and http
	MaxConcurrent     int      // over all nodes, 0: no limit of its own (G-TF-25)
	Rate              job.Rate // of starts, over all nodes; zero: none (AD-032)
}

const queuesSection = "taskflow.queues"

// validQueueName reports whether a text can be the name of a queue (TF-003).
func validQueueName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, setting.NameCharacters) == ""
}

// newQueue returns the settings of a queue that is named in the configuration, with their
// defaults.
func newQueue() *Queue { return &Queue{Handler: handlerNone, Settings: external.Defaults()} }

// keys declares the settings of one queue, below taskflow.queues.NAME.
func (q *Queue) keys() []setting.Key {
	return slices.Concat([]setting.Key{
		setting.Define("handler", "",
			"Handler of the jobs: exec (the server runs command), http (it calls url) or simulate; none is remote workers.",
			setting.Choice(&q.Handler, handlerNone, external.Exec, external.HTTP, handlerSimulate)),
	}, q.Keys(), []setting.Key{
		setting.Define("max_concurrent", "",
			"Maximum number of jobs of the queue that run at a time, over all nodes; 0 is no "+
				"limit of the queue.",
			setting.Int(&q.MaxConcurrent, 0, 1_000_000)),
		contract.RateKey(&q.Rate),
	})
}

// checkQueues is the rule that a queue has what its handler needs and nothing of another one. The
// queues are checked in the order of their names, so the same errors come in the same order.
func (s *Settings) checkQueues(c *setting.Checker) {
	for _, name := range slices.Sorted(maps.Keys(s.Queues)) {
		q := s.Queues[name]
		q.Check(c, queuesSection+"."+name+".", q.Handler)
	}
}
