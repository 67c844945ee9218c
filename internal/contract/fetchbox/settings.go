package fetchbox

import (
	"time"

	"github.com/millrace/millrace/internal/setting"
)

// Settings are the settings of FetchBox.
type Settings struct {
	Listen            string         // empty: the common listener
	Token             setting.Secret // of POST /jobs; empty: open, on loopback only (G-FB-31)
	CallbackSecret    setting.Secret // signs callbacks; empty: derived from the pepper
	MaxResources      int            // of a manifest
	MaxManifest       int64          // bytes, after decompression (G-FB-10)
	MaxAttempts       int            // failed attempts after which a task is given up
	MaxLostRuns       int            // lost attempts after which it is (G-FB-43)
	BackoffBase       time.Duration  // before the second attempt
	Lease             time.Duration  // of a task (G-FB-35)
	ConnectTimeout    time.Duration  // G-FB-29
	DownloadTimeout   time.Duration
	MaxDownload       int64         // bytes
	MaxPerHost        int           // downloads at a time from one host, on this node; 0: no limit
	IdempotencyWindow time.Duration // how long an idempotency key is remembered
	LedgerRetention   time.Duration // 0 keeps jobs for ever
	LedgerMaxBytes    int64         // 0 is no limit
	TasksRetention    time.Duration
	LogsRetention     time.Duration
	DLQRetention      time.Duration

	Types map[string]*Type // the registered job types; default is always there
	Pools map[string]*Pool // of proxies
}

// Group declares the settings. handlers are the handlers that are compiled in, with the options
// they support; nil leaves handlers and options unchecked.
func (s *Settings) Group(handlers map[string][]string) *setting.Group {
	types := setting.ItemsOf(&s.Types, newType, (*Type).keys)
	types.Add(defaultHandler)
	return &setting.Group{Name: Name, Listen: &s.Listen, Token: &s.Token,
		CallbackSecret: &s.CallbackSecret,
		Workers:        setting.OptionalWorkers, UsesStreams: func() bool { return true },
		Keys: s.keys(),
		Sections: []setting.Section{
			{Name: typesSection, AllowDots: true, AddEmpty: true, Valid: validType,
				ValidNames: "1 to 64 letters, digits, dots, hyphens and underscores, and does not begin with a dot",
				Items:      types},
			{Name: poolsSection, AllowDots: true, AddEmpty: true, Valid: validPool,
				ValidNames: "1 to 64 letters, digits, dots, hyphens and underscores, with slashes between them",
				Items:      setting.ItemsOf(&s.Pools, newPool, (*Pool).keys)},
		},
		Check: func(c *setting.Checker) {
			s.checkTypes(c, handlers)
			s.checkPools(c)
		},
	}
}

// keys declares the settings that are not in a section, with their defaults and bounds. The
// requirements name the defaults of limits and retentions (FB-014, FB-024, FB-050, FB-088 to
// FB-092).
func (s *Settings) keys() []setting.Key {
	return []setting.Key{
		setting.ListenKey(Name, "FetchBox", &s.Listen),
		setting.TokenKey(Name, "FetchBox", &s.Token),
		setting.CallbackSecretKey(Name, "FetchBox", &s.CallbackSecret),
		setting.Define("fetchbox.max_resources", "1000", "Maximum number of resources in a manifest.",
			setting.Int(&s.MaxResources, 1, 50_000)),
		setting.Define("fetchbox.max_manifest", "5MiB", "Largest manifest, after decompression.",
			setting.Size(&s.MaxManifest, 1<<10, 256<<20)),
		setting.Define("fetchbox.tries", "3", "Failed attempts after which a download is given up.",
			setting.Int(&s.MaxAttempts, 1, 100)),
		setting.Define("fetchbox.max_lost_runs", "10",
			"Lost workers after which a download is given up; they use up none of fetchbox.tries.",
			setting.Int(&s.MaxLostRuns, 1, 10_000)),
		setting.Define("fetchbox.backoff_base", "1s",
			"Delay after the first failed attempt at a download; each further one doubles it.",
			setting.Duration(&s.BackoffBase, 0, 24*time.Hour)),
		setting.Define("fetchbox.lease", "30s",
			"Time without a heartbeat after which the lease of a download expires.",
			setting.Duration(&s.Lease, 100*time.Millisecond, 24*time.Hour)),
		setting.Define("fetchbox.connect_timeout", "10s",
			"Time limit of connecting to a host.",
			setting.Duration(&s.ConnectTimeout, 10*time.Millisecond, 10*time.Minute)),
		setting.Define("fetchbox.download_timeout", "60s", "Time limit of one attempt at a download.",
			setting.Duration(&s.DownloadTimeout, 100*time.Millisecond, 24*time.Hour)),
		setting.Define("fetchbox.max_download", "1GiB", "Largest download.",
			setting.Size(&s.MaxDownload, 1, 64<<30)),
		setting.Define("fetchbox.max_per_host", "16",
			"Maximum number of concurrent downloads from one host, per node.",
			setting.Int(&s.MaxPerHost, 1, 10_000)),
		setting.Define("fetchbox.idempotency_window", "336h",
			"Time that an idempotency key is remembered.",
			setting.Duration(&s.IdempotencyWindow, time.Second, setting.TenYears)),
		setting.Define("fetchbox.ledger_retention", "720h",
			"Time that a job is kept in the ledger after it has ended.",
			setting.Duration(&s.LedgerRetention, time.Second, setting.TenYears)),
		setting.Define("fetchbox.ledger_max_bytes", "5GB",
			"Size of the ledger beyond which the oldest ended jobs are deleted.",
			setting.Size(&s.LedgerMaxBytes, 1<<10, 1<<50)),
		setting.Define("fetchbox.tasks_retention", "168h", "Time that task messages are kept.",
			setting.Duration(&s.TasksRetention, time.Second, setting.TenYears)),
		setting.Define("fetchbox.logs_retention", "720h", "Time that log entries are kept.",
			setting.Duration(&s.LogsRetention, time.Second, setting.TenYears)),
		setting.Define("fetchbox.dlq_retention", "2160h", "Time that dead letters are kept.",
			setting.Duration(&s.DLQRetention, time.Second, setting.TenYears)),
	}
}
