package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Objects says where objects are kept.
type Objects struct {
	URL    string // empty: a directory in DataDir
	Bucket string
}

// Stream says where streams are kept.
type Stream struct {
	URL    string // empty: a server in the process
	Listen string // where that can be reached; empty: nowhere
	Token  Secret
}

// FetchBox holds the settings of the FetchBox contract.
type FetchBox struct {
	Listen            string // empty: the common listener
	Token             Secret // empty: open, on loopback only (G-FB-31)
	MaxResources      int
	MaxManifest       int64 // bytes, decompressed (G-FB-10)
	MaxAttempts       int
	MaxLostRuns       int // G-FB-43
	BackoffBase       time.Duration
	Lease             time.Duration // G-FB-35
	ConnectTimeout    time.Duration // G-FB-29
	DownloadTimeout   time.Duration
	MaxDownload       int64 // bytes
	MaxPerHost        int   // on one node
	IdempotencyWindow time.Duration
	LedgerRetention   time.Duration
	LedgerMaxBytes    int64
	TasksRetention    time.Duration
	LogsRetention     time.Duration
	DLQRetention      time.Duration
}

// JobType holds the settings of a job type of FetchBox (FB-068).
type JobType struct {
	Handler        string
	DefaultHeaders map[string]Secret // some are credentials
	ProxyPrimary   string            // a pool; empty: none
	ProxyFallbacks []string          // pools
	Bucket         string            // empty: Objects.Bucket
	KeyPrefix      string            // empty: resources/NAME/
	Options        map[string]any    // the handler's, and maxParallel
}

// MaxParallel is how many downloads of the type may run at a time, over all nodes (FB-074); 0 is no
// limit.
func (t *JobType) MaxParallel() int {
	n, _ := t.Options[maxParallel].(int64)
	return int(n)
}

// unknown are the options of the type that are not among those known.
func (t *JobType) unknown(known []string) []string {
	return slices.DeleteFunc(sortedNames(t.Options), func(option string) bool {
		return slices.Contains(known, option)
	})
}

const maxParallel = "max_parallel_downloads"

// ProxyPool holds the settings of a pool of proxies.
type ProxyPool struct {
	Primary   []Secret // URLs, some with a password
	Fallbacks []string // pools
}

// sortedNames gives the names of a map in their order.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// checkFetchBox is the rule that what settings refer to is there (FB-069, G-FB-26). handlers are
// those compiled in, with their options; nil where nobody said.
func (s *Settings) checkFetchBox(valid func(...string) bool,
	handlers map[string][]string) (problems []Problem) {
	report := func(key, format string, v ...any) {
		if valid(key) {
			text := fmt.Sprintf("%q (%s): ", key, s.origin(key)) + fmt.Sprintf(format, v...)
			problems = append(problems, Problem{Key: key, Origin: s.origin(key), Text: text})
		}
	}
	checkReferences := func(key string, names ...string) {
		for _, name := range names {
			if s.Pools[name] == nil {
				report(key, "there is no proxy.pools.%s", name)
			}
		}
	}
	for _, name := range sortedNames(s.JobTypes) {
		t, at := s.JobTypes[name], jobTypeSection.section+"."+name+"."
		options, known := handlers[t.Handler]
		if handlers != nil && !known {
			report(at+"handler", "there is no handler %s; did you mean %q?", quote(t.Handler),
				nearest(t.Handler, sortedNames(handlers)))
		}
		if known {
			options = append([]string{maxParallel}, options...)
			for _, option := range t.unknown(options) {
				report(at+"options", "the handler %s has no option %s; did you mean %q?", t.Handler,
					quote(option), nearest(option, options))
			}
		}
		if t.ProxyPrimary != "" {
			checkReferences(at+"proxy.primary", t.ProxyPrimary)
		} else if len(t.ProxyFallbacks) > 0 {
			report(at+"proxy.fallbacks", "it is of no use without %sproxy.primary", at)
		}
		checkReferences(at+"proxy.fallbacks", t.ProxyFallbacks...)
	}
	for _, name := range sortedNames(s.Pools) {
		at := proxyPoolSection.section + "." + name + "."
		if len(s.Pools[name].Primary) == 0 {
			report(at+"primary", "%q is missing: the pool has no proxies", at+"primary")
		}
		checkReferences(at+"fallbacks", s.Pools[name].Fallbacks...)
		if cycle := s.fallbackCycle(name, name, nil); cycle != nil {
			report(at+"fallbacks", "the pool comes back to itself: %s", strings.Join(cycle, " → "))
		}
	}
	return problems
}

// fallbackCycle gives the way from a pool over fallbacks to another one, nil if there is none.
func (s *Settings) fallbackCycle(from, to string, visited []string) []string {
	visited = append(visited, from)
	if s.Pools[from] == nil {
		return nil
	}
	for _, next := range s.Pools[from].Fallbacks {
		if next == to {
			return append(visited, to)
		}
		if slices.Contains(visited, next) {
			continue
		}
		if cycle := s.fallbackCycle(next, to, slices.Clone(visited)); cycle != nil {
			return cycle
		}
	}
	return nil
}

// checkStream is the security rule of the streams: beyond loopback their server asks for a token,
// on a network where nobody reads it, as it speaks no TLS (G-FB-36).
func (s *Settings) checkStream() []Problem {
	at, text := "stream.listen", ""
	var missing []string
	switch {
	case s.Stream.Listen == "":
		return nil
	case s.Stream.URL != "":
		text = fmt.Sprintf(`the server in the process is not used: "stream.url" is set (%s)`,
			s.origin("stream.url"))
	case IsLoopback(s.Stream.Listen):
		return nil
	default:
		if s.Stream.Token.Empty() {
			missing = append(missing, "set stream.token")
		}
		if !s.TrustedNetwork {
			missing = append(missing,
				"set trusted_network = true, as the streams are served without TLS")
		}
		text = quote(s.Stream.Listen) + " is not loopback; " + strings.Join(missing, "; ") +
			"; or listen on 127.0.0.1"
		if len(missing) == 0 {
			return nil
		}
	}
	return []Problem{{Key: at, Origin: s.origin(at),
		Text: fmt.Sprintf("%q (%s): %s", at, s.origin(at), text)}}
}
