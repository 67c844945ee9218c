package config

import "time"

// storageKeys say where objects and streams are.
var storageKeys = []key{
	{"objects.url", "",
		"S3 store, as s3://?region=REGION&endpoint=URL, that objects are kept in; a directory in data_dir when empty.",
		func(s *Settings) value { return objectsValue{&s.Objects.URL} }},
	{"objects.bucket", "millrace",
		"Bucket of what is not given a bucket of its own; in data_dir a directory.",
		func(s *Settings) value { return bucketValue{p: &s.Objects.Bucket} }},
	{"stream.url", "",
		"NATS cluster that streams are kept in, as nats://HOST:PORT,…; a server in the process when empty.",
		func(s *Settings) value { return streamsValue{&s.Stream.URL} }},
	{"stream.listen", "",
		"Address where the NATS server in the process can be reached; none when empty.",
		func(s *Settings) value { return addressValue{p: &s.Stream.Listen, optional: true} }},
	{"stream.token", "",
		"Token that is sent to stream.url, and asked for on stream.listen; open on loopback when empty.",
		func(s *Settings) value { return secretValue{&s.Stream.Token} }},
}

// fetchBoxKeys are FetchBox's but for those of its job types and proxy pools.
var fetchBoxKeys = []key{
	{"fetchbox.listen", "", "Address of a listener for FetchBox alone; the common one when empty.",
		func(s *Settings) value { return addressValue{p: &s.FetchBox.Listen, optional: true} }},
	{"fetchbox.token", "", "Token that FetchBox clients send; open on loopback when empty.",
		func(s *Settings) value { return secretValue{&s.FetchBox.Token} }},
	{"fetchbox.max_resources", "1000", "Most resources of a manifest.",
		func(s *Settings) value { return intValue{&s.FetchBox.MaxResources, 1, 50_000} }},
	{"fetchbox.max_manifest", "5MiB", "Largest manifest, decompressed.",
		func(s *Settings) value { return sizeValue{&s.FetchBox.MaxManifest, 1 << 10, 256 << 20} }},
	{"fetchbox.tries", "3", "Tries after which a download is given up.",
		func(s *Settings) value { return intValue{&s.FetchBox.MaxAttempts, 1, 100} }},
	{"fetchbox.max_lost_runs", "10",
		"Lost workers after which a download is given up; they use up none of fetchbox.tries.",
		func(s *Settings) value { return intValue{&s.FetchBox.MaxLostRuns, 1, 10_000} }},
	{"fetchbox.backoff_base", "1s",
		"Wait after the first try of a download; each further one doubles it.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.BackoffBase, 0, 24 * time.Hour}
		}},
	{"fetchbox.lease", "30s",
		"Time without a heartbeat after which a download's worker is taken for dead.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.Lease, 100 * time.Millisecond, 24 * time.Hour}
		}},
	{"fetchbox.connect_timeout", "10s", "Time that a host has to take a connection.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.ConnectTimeout, 10 * time.Millisecond,
				10 * time.Minute}
		}},
	{"fetchbox.download_timeout", "60s", "Longest time of one try of a download.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.DownloadTimeout, 100 * time.Millisecond,
				24 * time.Hour}
		}},
	{"fetchbox.max_download", "1GiB", "Largest download.",
		func(s *Settings) value { return sizeValue{&s.FetchBox.MaxDownload, 1, 64 << 30} }},
	{"fetchbox.max_per_host", "16", "Most downloads at a time from one host, per node.",
		func(s *Settings) value { return intValue{&s.FetchBox.MaxPerHost, 1, 10_000} }},
	{"fetchbox.idempotency_window", "336h",
		"Time for which an idempotency key stands for the job it was first sent with.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.IdempotencyWindow, time.Second, tenYears}
		}},
	{"fetchbox.ledger_retention", "720h",
		"Time that a job is kept in the ledger after it is settled.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.LedgerRetention, time.Second, tenYears}
		}},
	{"fetchbox.ledger_max_bytes", "5GB",
		"Size of the ledger beyond which the oldest settled jobs are removed.",
		func(s *Settings) value { return sizeValue{&s.FetchBox.LedgerMaxBytes, 1 << 10, 1 << 50} }},
	{"fetchbox.tasks_retention", "168h", "Time that task messages are kept.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.TasksRetention, time.Second, tenYears}
		}},
	{"fetchbox.logs_retention", "720h", "Time that log entries are kept.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.LogsRetention, time.Second, tenYears}
		}},
	{"fetchbox.dlq_retention", "2160h", "Time that dead letters are kept.",
		func(s *Settings) value {
			return durationValue{&s.FetchBox.DLQRetention, time.Second, tenYears}
		}},
}

// jobTypeSection declares the job types of FetchBox (FB-068).
var jobTypeSection = &namedSection{section: "job_types", allowDots: true, valid: validJobType,
	validNames: "1 to 64 letters, digits, dots, hyphens and underscores, and does not begin with a dot",
	names:      func(s *Settings) []string { return sortedNames(s.JobTypes) },
	declare:    func(s *Settings, name string) { s.jobType(name) },
	members: []member{
		{"handler", "Name of the handler that is compiled in.",
			func(s *Settings, name string) value { return nameValue{p: &s.jobType(name).Handler} }},
		{"default_headers",
			"Table of headers that are sent with every download but where its resource has its own.",
			func(s *Settings, name string) value {
				return headersValue{&s.jobType(name).DefaultHeaders}
			}},
		{"proxy.primary", "Pool of proxies that downloads go through; none when empty.",
			func(s *Settings, name string) value {
				return nameValue{p: &s.jobType(name).ProxyPrimary, optional: true}
			}},
		{"proxy.fallbacks", "Pools that are used in turn when proxy.primary fails.",
			func(s *Settings, name string) value {
				return listValue{&s.jobType(name).ProxyFallbacks}
			}},
		{"storage.bucket", "Bucket of downloads; objects.bucket when empty.",
			func(s *Settings, name string) value {
				return bucketValue{p: &s.jobType(name).Bucket, optional: true}
			}},
		{"storage.key_prefix", "What keys of downloads begin with; resources/NAME/ when empty.",
			func(s *Settings, name string) value {
				return prefixValue{&s.jobType(name).KeyPrefix}
			}},
		{"options", "Table that is handed to the handler; max_parallel_downloads in it bounds " +
			"downloads, over all nodes.",
			func(s *Settings, name string) value { return optionsValue{&s.jobType(name).Options} }},
	}}

// proxyPoolSection declares the pools of proxies (G-FB-34).
var proxyPoolSection = &namedSection{section: "proxy.pools", allowDots: true, valid: validPool,
	validNames: "1 to 64 letters, digits, dots, hyphens and underscores, with slashes between them",
	names:      func(s *Settings) []string { return sortedNames(s.Pools) },
	declare:    func(s *Settings, name string) { s.pool(name) },
	members: []member{
		{"primary", "URLs of the pool's proxies: http, https or socks5, with user and password " +
			"if need be.",
			func(s *Settings, name string) value { return proxiesValue{&s.pool(name).Primary} }},
		{"fallbacks", "Pools that are used in turn when all of primary fail.",
			func(s *Settings, name string) value { return listValue{&s.pool(name).Fallbacks} }},
	}}

// defaultHandler is the handler of job types that name none; a type of the same name is always
// registered.
const defaultHandler = "default"

// jobType gives a type's settings, with the defaults if nothing is set yet.
func (s *Settings) jobType(name string) *JobType {
	if s.JobTypes == nil {
		s.JobTypes = map[string]*JobType{}
	}
	if s.JobTypes[name] == nil {
		s.JobTypes[name] = &JobType{Handler: defaultHandler}
	}
	return s.JobTypes[name]
}

// pool gives a pool's settings.
func (s *Settings) pool(name string) *ProxyPool {
	if s.Pools == nil {
		s.Pools = map[string]*ProxyPool{}
	}
	if s.Pools[name] == nil {
		s.Pools[name] = &ProxyPool{}
	}
	return s.Pools[name]
}
