package config

import "time"

// forgeRunKeys are ForgeRun's (FR-247, FR-248).
var forgeRunKeys = []key{
	{"forgerun.listen", "", "Address of a listener for ForgeRun alone; the common one when empty.",
		func(s *Settings) value { return addressValue{p: &s.ForgeRun.Listen, optional: true} }},
	{"forgerun.log_requests", "true",
		"Logs requests and changes of state of ForgeRun at info; at debug, as those of the other contracts, when false.",
		func(s *Settings) value { return boolValue{&s.ForgeRun.LogRequests} }},
	{"forgerun.types", "EXECUTE,DEFERRED,EMIT_EVENT", "Types of job that may be submitted.",
		func(s *Settings) value { return namesValue{&s.ForgeRun.Types, forgeRunTypes} }},
	{"forgerun.workers", "4", "Workers of this node.",
		func(s *Settings) value { return intValue{&s.ForgeRun.Workers, 1, 1000} }},
	{"forgerun.jobs_per_worker", "1", "Jobs that one worker runs at a time.",
		func(s *Settings) value { return intValue{&s.ForgeRun.JobsPerWorker, 1, 1000} }},
	{"forgerun.lease", "30s",
		"Time without a heartbeat after which a job's worker is taken for dead.",
		func(s *Settings) value {
			return durationValue{&s.ForgeRun.Lease, 100 * time.Millisecond, time.Hour}
		}},
	{"forgerun.heartbeat", "5s", "Time between two heartbeats of a worker; shorter than the lease.",
		func(s *Settings) value {
			return durationValue{&s.ForgeRun.Heartbeat, 10 * time.Millisecond, time.Hour}
		}},
	{"forgerun.max_run_time", "120s",
		"Longest run of a job; what runs longer is stopped and fails.",
		func(s *Settings) value {
			return durationValue{&s.ForgeRun.MaxRunTime, time.Second, 24 * time.Hour}
		}},
	{"forgerun.cancel_window", "0s",
		"Time that CANCEL_BEFORE_START jobs wait before they can be claimed, to be canceled in.",
		func(s *Settings) value { return durationValue{&s.ForgeRun.CancelWindow, 0, time.Hour} }},
	{"forgerun.max_retries", "3", "How often a failed job may be retried.",
		func(s *Settings) value { return intValue{&s.ForgeRun.MaxRetries, 0, 1000} }},
	{"forgerun.backoff_base", "1s", "Longest wait of the first retry; each further one doubles it.",
		func(s *Settings) value {
			return durationValue{&s.ForgeRun.BackoffBase, 0, 24 * time.Hour}
		}},
	{"forgerun.backoff_max", "60s", "Longest wait of any retry.",
		func(s *Settings) value {
			return durationValue{&s.ForgeRun.BackoffMax, 0, 24 * time.Hour}
		}},
	{"forgerun.auto_retry", "false",
		"Retries kinds of work that are marked retryable without being asked.",
		func(s *Settings) value { return boolValue{&s.ForgeRun.AutoRetry} }},
	{"forgerun.rate_limit_per_minute", "600", "Requests that a client may send in a minute.",
		func(s *Settings) value { return intValue{&s.ForgeRun.RateLimitPerMinute, 1, billion} }},
	{"forgerun.quota_per_day", "0", "Requests that a client may send in a day; 0 is no limit.",
		func(s *Settings) value { return intValue{&s.ForgeRun.QuotaPerDay, 0, billion} }},
	{"forgerun.anonymous_rate_limit_per_minute", "60",
		"Requests without a valid key that an address may send in a minute.",
		func(s *Settings) value {
			return intValue{&s.ForgeRun.AnonymousRateLimitPerMinute, 1, billion}
		}},
	{"forgerun.max_active_jobs", "1000",
		"Jobs that are assigned or running at a time, over all nodes.",
		func(s *Settings) value { return intValue{&s.ForgeRun.MaxActiveJobs, 1, 1_000_000} }},
	{"forgerun.queue_size", "100000",
		"Jobs that may be queued; what is submitted beyond that is refused.",
		func(s *Settings) value { return intValue{&s.ForgeRun.QueueSize, 1, billion} }},
	{"forgerun.body_limit", "1MiB", "Largest request body that ForgeRun takes.",
		func(s *Settings) value { return sizeValue{&s.ForgeRun.BodyLimit, 1 << 10, 1 << 30} }},
	{"forgerun.payload_limit", "256KiB", "Largest payload of a job.",
		func(s *Settings) value { return sizeValue{&s.ForgeRun.PayloadLimit, 1 << 10, 16 << 20} }},
	{"forgerun.failure_probability", "0.2",
		"Share of failing jobs among those whose kind of work is chosen by the server.",
		func(s *Settings) value { return numberValue{&s.ForgeRun.FailureProbability, 0, 1} }},
	{"forgerun.duration_scale", "1",
		"Factor on how long work simulated in the process takes and may take.",
		func(s *Settings) value { return numberValue{&s.ForgeRun.DurationScale, 0.00001, 1000} }},
	{"forgerun.retention", "720h", "Time that a job is kept after it is final.",
		func(s *Settings) value {
			return durationValue{&s.ForgeRun.Retention, time.Second, tenYears}
		}},
	{"forgerun.revoked_key_retention", "2160h", "Time that a revoked key is kept for audits.",
		func(s *Settings) value {
			return durationValue{&s.ForgeRun.RevokedKeyRetention, time.Second, tenYears}
		}},
	{"forgerun.key_lifetime", "2160h", "Time after which an API key expires; 0s is never.",
		func(s *Settings) value { return durationValue{&s.ForgeRun.KeyLifetime, 0, tenYears} }},
}

// webhookKeys are those of what is sent to the webhooks and callbacks of clients (FR-194).
var webhookKeys = []key{
	{"webhook.timeout", "5s", "Time that a receiver has to answer.",
		func(s *Settings) value {
			return durationValue{&s.Webhook.Timeout, 10 * time.Millisecond, 5 * time.Minute}
		}},
	{"webhook.max_tries", "8", "Tries after which a delivery is given up.",
		func(s *Settings) value { return intValue{&s.Webhook.MaxAttempts, 1, 100} }},
	{"webhook.backoff_base", "1s", "Wait after the first try of a delivery.",
		func(s *Settings) value {
			return durationValue{&s.Webhook.BackoffBase, time.Millisecond, 24 * time.Hour}
		}},
	{"webhook.backoff_factor", "5", "Factor from one wait of a delivery to the next.",
		func(s *Settings) value { return numberValue{&s.Webhook.BackoffFactor, 1, 100} }},
	{"webhook.backoff_max", "2h", "Longest wait between two tries of a delivery.",
		func(s *Settings) value {
			return durationValue{&s.Webhook.BackoffMax, time.Millisecond, 7 * 24 * time.Hour}
		}},
}
