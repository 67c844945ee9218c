package forgerun

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/webhook"
)

// Settings are the settings of ForgeRun (FR-247, FR-248).
type Settings struct {
	Listen string // empty: the common listener
	// LogRequests logs requests and transitions at INFO, as the document asks, instead of DEBUG.
	LogRequests bool

	Types              []string // the types that may be submitted (FR-059)
	Workers            int      // of this node
	JobsPerWorker      int
	Lease              time.Duration
	Heartbeat          time.Duration
	MaxRunTime         time.Duration
	CancelWindow       time.Duration // G-FR-32
	MaxRetries         int
	BackoffBase        time.Duration
	BackoffMax         time.Duration
	AutoRetry          bool    // G-FR-06
	FailureProbability float64 // FR-078
	DurationScale      float64 // G-FR-55

	RatePerMinute       int
	QuotaPerDay         int // 0: none
	AnonymousPerMinute  int // of an address, G-FR-16
	MaxActiveJobs       int // over all nodes, G-FR-13
	QueueSize           int // G-FR-12
	BodyLimit           int64
	PayloadLimit        int64         // bytes of a job's payload (G-FR-17)
	Retention           time.Duration // of final jobs; 0 keeps them for ever
	RevokedKeyRetention time.Duration
	KeyLifetime         time.Duration // 0: keys do not expire (G-FR-27)

	Webhook Webhook
}

// Webhook holds the settings of deliveries (FR-194).
type Webhook struct {
	Timeout       time.Duration
	MaxAttempts   int
	BackoffBase   time.Duration
	BackoffMax    time.Duration
	BackoffFactor float64
}

// Group declares the settings. It has no token: clients have API keys.
func (s *Settings) Group() *setting.Group {
	common := []setting.Key{
		setting.ListenKey(Name, "ForgeRun", &s.Listen),
		setting.Define("forgerun.log_requests", "true",
			"Logs requests and transitions of ForgeRun at info; when false at debug, like those of other contracts.",
			setting.Bool(&s.LogRequests)),
	}
	return &setting.Group{Name: Name, Listen: &s.Listen, Workers: setting.OptionalWorkers,
		Keys:  slices.Concat(common, s.runKeys(), s.limitKeys(), s.Webhook.keys()),
		Check: s.check}
}

// runKeys declares how jobs run. The default of max_run_time is above the 110 s that RUNS_LONG
// needs to succeed (G-FR-37).
func (s *Settings) runKeys() []setting.Key {
	return []setting.Key{
		setting.Define("forgerun.types", "EXECUTE,DEFERRED,EMIT_EVENT",
			"Types of job that may be submitted.",
			setting.Names(&s.Types, types...)),
		setting.Define("forgerun.workers", "4", "Workers of this node.",
			setting.Int(&s.Workers, 1, 1000)),
		setting.Define("forgerun.jobs_per_worker", "1", "Jobs that one worker runs at a time.",
			setting.Int(&s.JobsPerWorker, 1, 1000)),
		setting.Define("forgerun.lease", "30s",
			"Time without a heartbeat after which the lease of a job expires.",
			setting.Duration(&s.Lease, 100*time.Millisecond, time.Hour)),
		setting.Define("forgerun.heartbeat", "5s",
			"Time between two heartbeats of a worker; shorter than the lease.",
			setting.Duration(&s.Heartbeat, 10*time.Millisecond, time.Hour)),
		setting.Define("forgerun.max_run_time", "120s",
			"Time limit of a run; a job that runs longer is stopped and fails.",
			setting.Duration(&s.MaxRunTime, time.Second, 24*time.Hour)),
		setting.Define("forgerun.cancel_window", "0s",
			"Time before CANCEL_BEFORE_START jobs can be claimed, in which they may be canceled.",
			setting.Duration(&s.CancelWindow, 0, time.Hour)),
		setting.Define("forgerun.max_retries", "3", "Maximum number of retries of a failed job.",
			setting.Int(&s.MaxRetries, 0, 1000)),
		setting.Define("forgerun.backoff_base", "1s",
			"Largest delay before the first retry; each further retry doubles it.",
			setting.Duration(&s.BackoffBase, 0, 24*time.Hour)),
		setting.Define("forgerun.backoff_max", "60s", "Largest delay before any retry.",
			setting.Duration(&s.BackoffMax, 0, 24*time.Hour)),
		setting.Define("forgerun.auto_retry", "false",
			"Retries failed jobs of retryable work kinds without a request.",
			setting.Bool(&s.AutoRetry)),
		setting.Define("forgerun.failure_probability", "0.2",
			"Share of failing jobs among those whose work kind the server chooses.",
			setting.Number(&s.FailureProbability, 0, 1)),
		setting.Define("forgerun.duration_scale", "1",
			"Factor on the duration of simulated work in the process and on its time limit.",
			setting.Number(&s.DurationScale, 0.00001, 1000)),
	}
}

// limitKeys declares how much clients may send, and how much is kept. Rates and the quota are per
// client, or per address, over all nodes; max_active_jobs and queue_size are over all clients and
// nodes.
func (s *Settings) limitKeys() []setting.Key {
	return []setting.Key{
		setting.Define("forgerun.rate_limit_per_minute", "600",
			"Maximum number of requests of a client in a minute.",
			setting.Int(&s.RatePerMinute, 1, setting.Billion)),
		setting.Define("forgerun.quota_per_day", "0",
			"Maximum number of requests of a client in a day; 0 is no limit.",
			setting.Int(&s.QuotaPerDay, 0, setting.Billion)),
		setting.Define("forgerun.anonymous_rate_limit_per_minute", "60",
			"Maximum number of requests without a valid key from an address in a minute.",
			setting.Int(&s.AnonymousPerMinute, 1, setting.Billion)),
		setting.Define("forgerun.max_active_jobs", "1000",
			"Maximum number of jobs that are assigned or running at a time, over all nodes.",
			setting.Int(&s.MaxActiveJobs, 1, 1_000_000)),
		setting.Define("forgerun.queue_size", "100000",
			"Maximum number of queued jobs; further submissions are refused.",
			setting.Int(&s.QueueSize, 1, setting.Billion)),
		setting.Define("forgerun.body_limit", "1MiB", "Largest request body.",
			setting.Size(&s.BodyLimit, 1<<10, 1<<30)),
		setting.Define("forgerun.payload_limit", "256KiB", "Largest payload of a job.",
			setting.Size(&s.PayloadLimit, 1<<10, 16<<20)),
		setting.Define("forgerun.retention", "720h", "Time that a job is kept after it has ended.",
			setting.Duration(&s.Retention, time.Second, setting.TenYears)),
		setting.Define("forgerun.revoked_key_retention", "2160h",
			"Time that a revoked key is kept for audits.",
			setting.Duration(&s.RevokedKeyRetention, time.Second, setting.TenYears)),
		setting.Define("forgerun.key_lifetime", "2160h",
			"Time after which an API key expires; 0s is never.",
			setting.Duration(&s.KeyLifetime, 0, setting.TenYears)),
	}
}

// keys declares what holds for the webhooks and callbacks of clients.
func (s *Webhook) keys() []setting.Key {
	return []setting.Key{
		setting.Define("webhook.timeout", "5s", "Time limit of one delivery attempt.",
			setting.Duration(&s.Timeout, 10*time.Millisecond, 5*time.Minute)),
		setting.Define("webhook.max_tries", "8", "Attempts after which a delivery is given up.",
			setting.Int(&s.MaxAttempts, 1, 100)),
		setting.Define("webhook.backoff_base", "1s", "Delay after the first failed attempt at a delivery.",
			setting.Duration(&s.BackoffBase, time.Millisecond, 24*time.Hour)),
		setting.Define("webhook.backoff_factor", "5",
			"Factor between one delay of a delivery and the next.",
			setting.Number(&s.BackoffFactor, 1, 100)),
		setting.Define("webhook.backoff_max", "2h", "Largest delay between two attempts at a delivery.",
			setting.Duration(&s.BackoffMax, time.Millisecond, 7*24*time.Hour)),
	}
}

// config returns what the settings decide of webhooks.
func (s *Webhook) config(retention time.Duration) webhook.Config {
	return webhook.Config{
		Timeout:       s.Timeout,
		MaxAttempts:   s.MaxAttempts,
		BackoffBase:   s.BackoffBase,
		BackoffMax:    s.BackoffMax,
		BackoffFactor: s.BackoffFactor,
		Retention:     retention,
		Random:        rand.Reader,
	}
}

// check holds the order of durations. A worker whose heartbeats are as far apart as its lease is
// long would lose its jobs.
func (s *Settings) check(c *setting.Checker) {
	c.Below("forgerun.heartbeat", s.Heartbeat, "forgerun.lease", s.Lease)
	c.NotAbove("forgerun.backoff_base", s.BackoffBase, "forgerun.backoff_max", s.BackoffMax)
	w := &s.Webhook
	c.NotAbove("webhook.backoff_base", w.BackoffBase, "webhook.backoff_max", w.BackoffMax)
}
