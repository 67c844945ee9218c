package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// checkWorkers is the security rule of the worker API on the common listener: beyond loopback it
// has a token, which does not travel unencrypted (G-X-20). Without a contract that requires workers
// the API is not served instead; see ServesWorkers.
func (s *Settings) checkWorkers(c *setting.Checker) {
	if setting.IsLoopback(s.Listen) || !s.servesRemoteJobs() {
		return
	}
	if s.missesWorkerToken() {
		c.Report("worker.token", fmt.Sprintf(`"worker.token" is missing: "listen" (%s), %s, is not loopback, and the worker API is served there with %s`,
			s.origin("listen"), setting.Quote(s.Listen), joinAnd(s.requiringWorkers())))
		return
	}
	if s.Worker.Token.Empty() || c.Has("listen") || s.TLS.Enabled() || s.TrustedNetwork {
		return
	}
	c.Reportf("listen", "%s is not loopback and serves the worker API, whose token would travel in "+
		"the clear; %s; or listen on 127.0.0.1", setting.Quote(s.Listen), encryptionHint)
}

// ServesOperators reports whether the admin API and the console are served: the operator's token
// must not travel in the clear beyond loopback.
func (s *Settings) ServesOperators() bool {
	return setting.IsLoopback(s.Listen) || s.TLS.Enabled() || s.TrustedNetwork
}

// checkOperator is the rule that the token which only reads is another one than the operator's.
func (s *Settings) checkOperator(c *setting.Checker) {
	read := s.Operator.ReadToken
	if !read.Empty() && read.Reveal() == s.Operator.Token.Reveal() {
		c.Reportf("operator.read_token", "it is the same as operator.token, and may only read")
	}
}

// requiringWorkers returns the names of the contracts that are served and require remote workers.
func (s *Settings) requiringWorkers() []string {
	var names []string
	for _, g := range s.served() {
		if g.Workers == setting.RequiredWorkers {
			names = append(names, g.Name)
		}
	}
	return names
}

// missesWorkerToken reports whether the worker API must be served and lacks its token.
func (s *Settings) missesWorkerToken() bool {
	return len(s.requiringWorkers()) > 0 && s.Worker.Token.Empty()
}

// servesRemoteJobs reports whether a contract with jobs for remote workers is served.
func (s *Settings) servesRemoteJobs() bool {
	return slices.ContainsFunc(s.served(), func(g *setting.Group) bool {
		return g.Workers != setting.NoWorkers
	})
}

// ServesWorkers reports whether the worker API is served: there are jobs for remote workers, and
// beyond loopback it has a token.
func (s *Settings) ServesWorkers() bool {
	return s.servesRemoteJobs() &&
		(setting.IsLoopback(s.Listen) || !s.Worker.Token.Empty())
}

// checkStream is the security rule of the streams: beyond loopback their server asks for a token,
// on a network where nobody reads it, as it speaks no TLS (G-FB-36).
func (s *Settings) checkStream(c *setting.Checker) {
	at, text := "stream.listen", ""
	var missing []string
	switch {
	case s.Stream.Listen == "":
		return
	case s.Stream.URL != "":
		text = fmt.Sprintf(`the server in the process is not used: "stream.url" is set (%s)`,
			s.origin("stream.url"))
	case setting.IsLoopback(s.Stream.Listen):
		return
	default:
		if s.Stream.Token.Empty() {
			missing = append(missing, "set stream.token")
		}
		if !s.TrustedNetwork {
			missing = append(missing,
				"set trusted_network = true, as the streams are served without TLS")
		}
		text = setting.Quote(s.Stream.Listen) + " is not loopback; " + strings.Join(missing, "; ") +
			"; or listen on 127.0.0.1"
		if len(missing) == 0 {
			return
		}
	}
	c.Reportf(at, "%s", text)
}
