package wordcount

import (
	"time"

	"github.com/millrace/millrace/internal/setting"
)

// Settings are the settings of WordCount.
type Settings struct {
	Listen  string         // empty: the common listener
	Token   setting.Secret // empty: no authentication, on loopback only
	Workers int            // of this node
	MaxText int64          // bytes
	Lease   time.Duration
}

// Group declares the settings. They are read into s before Build is called.
func (s *Settings) Group() *setting.Group {
	return &setting.Group{Name: Name, Listen: &s.Listen, Token: &s.Token,
		Workers: setting.OptionalWorkers, Keys: []setting.Key{
			setting.ListenKey(Name, "WordCount", &s.Listen),
			setting.TokenKey(Name, "WordCount", &s.Token),
			setting.Define("wordcount.workers", "2", "Texts that this node counts at a time.",
				setting.Int(&s.Workers, 1, 100)),
			setting.Define("wordcount.max_text", "1KiB", "Largest text that is counted.",
				setting.Size(&s.MaxText, 1, 1<<20)),
			setting.Define("wordcount.lease", "30s",
				"Time without a heartbeat after which the worker of a text is taken for dead.",
				setting.Duration(&s.Lease, time.Second, time.Hour)),
		}}
}
