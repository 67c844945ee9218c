package relay

import "github.com/millrace/millrace/internal/setting"

// Settings are the settings of Relay.
type Settings struct {
	Listen          string         // empty: the common listener
	Token           setting.Secret // empty: no authentication, on loopback only (G-RL-24)
	V1              bool           // serve version 1 as well (G-RL-22)
	MaxNumJobs      int            // G-RL-11
	BodyLimit       int64          // bytes, G-RL-13
	RetryableStatus int            // 429 or 503, G-RL-09
}

// Group declares the settings.
//
// Timeouts need no setting: each job has its own, and maintenance finds expired leases within a
// second (G-RL-28).
func (s *Settings) Group() *setting.Group {
	return &setting.Group{Name: Name, Listen: &s.Listen, Token: &s.Token, Keys: []setting.Key{
		setting.ListenKey(Name, "Relay", &s.Listen),
		setting.TokenKey(Name, "Relay", &s.Token),
		setting.Define("relay.v1", "true", "Serves version 1 too, under /v1/queues.",
			setting.Bool(&s.V1)),
		setting.Define("relay.max_num_jobs", "1000",
			"Most jobs in the answer to one poll, even if it asks for more.",
			setting.Int(&s.MaxNumJobs, 1, 100_000)),
		setting.Define("relay.body_limit", "64MiB", "Largest request body.",
			setting.Size(&s.BodyLimit, 1<<10, 1<<30)),
		setting.Define("relay.retryable_status", "429",
			"Status of answers that clients should retry: 429 or 503.",
			setting.Status(&s.RetryableStatus, 429, 503)),
	}}
}
