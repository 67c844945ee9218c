package fetchbox

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// Job types name handlers, options and pools; pools name other pools. These rules find a name that
// leads nowhere, so that the node does not start with it (FB-069, G-FB-26). A setting whose own
// value is invalid is left out, as its problem is reported already.

// checkTypes is the rule that what the settings of job types refer to is there (FB-069).
func (s *Settings) checkTypes(c *setting.Checker, handlers map[string][]string) {
	for _, name := range sortedNames(s.Types) {
		t, at := s.Types[name], typesSection+"."+name+"."
		options, known := handlers[t.Handler]
		if handlers != nil && !known {
			report(c, at+"handler", "there is no handler %s; did you mean %q?",
				setting.Quote(t.Handler), setting.Nearest(t.Handler, sortedNames(handlers)))
		}
		if known {
			options = append([]string{maxParallelOption}, options...)
			for _, option := range unknownNames(t.Options, options) {
				report(c, at+"options", "the handler %s has no option %s; did you mean %q?",
					t.Handler, setting.Quote(option), setting.Nearest(option, options))
			}
		}
		t.Check(c, at, t.Handler)
		if t.Proxy.Primary != "" {
			s.checkReferences(c, at+"proxy.primary", t.Proxy.Primary)
		} else if len(t.Proxy.Fallbacks) > 0 {
			report(c, at+"proxy.fallbacks", "it needs %sproxy.primary", at)
		}
		s.checkReferences(c, at+"proxy.fallbacks", t.Proxy.Fallbacks...)
	}
}

// checkPools is the rule that pools have proxies and fall back on pools that are there, and not on
// themselves (G-FB-26).
func (s *Settings) checkPools(c *setting.Checker) {
	for _, name := range sortedNames(s.Pools) {
		at := poolsSection + "." + name + "."
		if len(s.Pools[name].Primary) == 0 {
			report(c, at+"primary", "%q is missing: the pool has no proxies", at+"primary")
		}
		s.checkReferences(c, at+"fallbacks", s.Pools[name].Fallbacks...)
		if cycle := s.fallbackCycle(name, name, nil); cycle != nil {
			report(c, at+"fallbacks", "the pool comes back to itself: %s",
				strings.Join(cycle, " → "))
		}
	}
}

// report adds a problem of a setting, unless its value is invalid.
func report(c *setting.Checker, key, format string, v ...any) {
	if c.Valid(key) {
		c.Reportf(key, format, v...)
	}
}

// checkReferences reports each of the names that is not a pool.
func (s *Settings) checkReferences(c *setting.Checker, key string, names ...string) {
	for _, name := range names {
		if s.Pools[name] == nil {
			report(c, key, "there is no proxy.pools.%s", name)
		}
	}
}

// unknownNames are the names of a table that are not among those known.
func unknownNames(table map[string]any, known []string) []string {
	return slices.DeleteFunc(sortedNames(table), func(name string) bool {
		return slices.Contains(known, name)
	})
}

// fallbackCycle returns the path from a pool over fallbacks to another one, nil if there is none.
// visited are the pools on the path to from. A cycle that does not contain to ends the search below
// it: it is reported for its own pools.
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
