package relay

import (
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Settings are the settings of Relay.
type Settings struct {
	Listen          string         // empty: the common listener
	Token           setting.Secret // empty: no authentication, on loopback only (G-RL-24)
	CallbackSecret  setting.Secret // signs callbacks; empty: derived from the pepper
	V1              bool           // serve version 1 as well (G-RL-22)
	MaxNumJobs      int            // G-RL-11
	BodyLimit       int64          // bytes, G-RL-13
	RetryableStatus int            // 429 or 503, G-RL-09
	Queues          map[string]*Queue
}

// Queue holds the settings of one queue.
type Queue struct {
	Rate job.Rate // of starts, over all nodes; zero: none (AD-032)
}

// Group declares the settings.
//
// Timeouts need no setting: each job has its own, and maintenance finds expired leases within a
// second (G-RL-28).
func (s *Settings) Group() *setting.Group {
	return &setting.Group{Name: Name, Listen: &s.Listen, Token: &s.Token,
		CallbackSecret: &s.CallbackSecret, Keys: []setting.Key{
			setting.ListenKey(Name, "Relay", &s.Listen),
			setting.TokenKey(Name, "Relay", &s.Token),
			setting.CallbackSecretKey(Name, "Relay", &s.CallbackSecret),
			setting.Define("relay.v1", "true", "Serves version 1 too, under /v1/queues.",
				setting.Bool(&s.V1)),
			setting.Define("relay.max_num_jobs", "1000",
				"Maximum number of jobs in the answer to one poll, even if it asks for more.",
				setting.Int(&s.MaxNumJobs, 1, 100_000)),
			setting.Define("relay.body_limit", "64MiB", "Largest request body.",
				setting.Size(&s.BodyLimit, 1<<10, 1<<30)),
			setting.Define("relay.retryable_status", "429",
				"Status of answers that clients should retry: 429 or 503.",
				setting.Status(&s.RetryableStatus, 429, 503)),
		}, Sections: []setting.Section{{
			Name:       "relay.queues",
			AllowDots:  true,
			Valid:      validQueueName,
			ValidNames: "1 to 1024 characters without U+0000",
			Items: setting.ItemsOf(&s.Queues, func() *Queue { return new(Queue) },
				(*Queue).keys),
		}}}
}

// validQueueName reports whether a text can be the name of a queue (RL-002).
func validQueueName(s string) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxName &&
		!strings.Contains(s, "\x00")
}

// keys declares the settings of one queue, below relay.queues.NAME.
func (q *Queue) keys() []setting.Key {
	return []setting.Key{contract.RateKey(&q.Rate)}
}
