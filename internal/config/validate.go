package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// unauthenticatedContract is a contract whose document requires no credentials (design, section 8).
type unauthenticatedContract struct {
	name   string
	listen func(*Settings) string // its own listener, empty for the common one
	token  func(*Settings) *Secret
}

var unauthenticatedContracts = []unauthenticatedContract{
	{"images",
		func(s *Settings) string { return s.Images.Listen },
		func(s *Settings) *Secret { return &s.Images.Token }},
	{"taskflow",
		func(s *Settings) string { return s.TaskFlow.Listen },
		func(s *Settings) *Secret { return &s.TaskFlow.Token }},
	{"fetchbox",
		func(s *Settings) string { return s.FetchBox.Listen },
		func(s *Settings) *Secret { return &s.FetchBox.Token }},
	{"relay",
		func(s *Settings) string { return s.Relay.Listen },
		func(s *Settings) *Secret { return &s.Relay.Token }},
}

// applyCommonToken gives the common token to the unauthenticated contracts without a token of their
// own, and to the worker API.
func (s *Settings) applyCommonToken() {
	if s.Token.Empty() {
		return
	}
	apply := func(name string, token *Secret) {
		if token.Empty() {
			*token = s.Token
			s.origins[name] = "token, " + s.origin("token")
		}
	}
	for _, c := range unauthenticatedContracts {
		apply(c.name+".token", c.token(s))
	}
	if s.Serves("taskflow") || s.Serves("fetchbox") || s.Serves("images") {
		apply("worker.token", &s.Worker.Token)
	}
}

// Validate checks the rules across keys. Load does so too; this is for settings made by other code.
func (s Settings) Validate() error {
	return newError(s.check(nil, nil))
}

// check applies the rules across keys, except for those about a key whose own value is invalid.
func (s *Settings) check(failed map[string]bool, handlers map[string][]string) []Problem {
	var problems []Problem
	valid := func(names ...string) bool {
		for _, n := range names {
			if failed[n] {
				return false
			}
		}
		return true
	}
	if valid("tls.cert", "tls.key") {
		problems = append(problems, s.checkTLS()...)
	}
	for _, o := range durationOrders {
		if valid(o.smaller, o.larger) {
			problems = append(problems, s.checkOrder(o)...)
		}
	}
	problems = append(problems, s.checkQueues(valid)...)
	problems = append(problems, s.checkFetchBox(valid, handlers)...)
	if valid("stream.url", "stream.listen", "stream.token", "trusted_network") {
		problems = append(problems, s.checkStream()...)
	}
	if valid("images.cdn", "images.cdn_url", "images.cloudfront_distribution") {
		problems = append(problems, s.checkImages()...)
	}
	if !valid("listen", "contracts", "token", "operator.token", "tls.cert", "tls.key",
		"trusted_network") {
		return problems
	}
	open := s.checkOpen(valid)
	problems = append(problems, open...)
	if valid("forgerun.listen") {
		problems = s.checkPlaintext(problems)
	}
	if valid("worker.token") && !hasProblem(open, "listen") { // which names worker.token as well
		problems = s.checkWorkers(problems)
	}
	return problems
}

// durationOrder is the rule that one duration is at most another, or below it where strict.
type durationOrder struct {
	smaller, larger string
	strict          bool
	durations       func(*Settings) (less, more time.Duration)
}

var durationOrders = []durationOrder{
	{"forgerun.heartbeat", "forgerun.lease", true,
		func(s *Settings) (time.Duration, time.Duration) {
			return s.ForgeRun.Heartbeat, s.ForgeRun.Lease
		}},
	{"forgerun.backoff_base", "forgerun.backoff_max", false,
		func(s *Settings) (time.Duration, time.Duration) {
			return s.ForgeRun.BackoffBase, s.ForgeRun.BackoffMax
		}},
	{"images.backoff_base", "images.backoff_max", false,
		func(s *Settings) (time.Duration, time.Duration) {
			return s.Images.BackoffBase, s.Images.BackoffMax
		}},
	{"webhook.backoff_base", "webhook.backoff_max", false,
		func(s *Settings) (time.Duration, time.Duration) {
			return s.Webhook.BackoffBase, s.Webhook.BackoffMax
		}},
}

func (s *Settings) checkOrder(o durationOrder) []Problem {
	smaller, larger := o.durations(s)
	if smaller < larger || (smaller == larger && (!o.strict || smaller == 0)) {
		return nil
	}
	words := "must not be above"
	if o.strict {
		words = "must be below"
	}
	return []Problem{{Key: o.smaller, Origin: s.origin(o.smaller),
		Text: fmt.Sprintf("%q (%s): %s %s %q, which is %s (%s)", o.smaller, s.origin(o.smaller),
			formatDuration(smaller), words, o.larger, formatDuration(larger), s.origin(o.larger))}}
}

// checkPlaintext is the rule for ForgeRun, whose clients send API keys: beyond loopback these must
// not travel unencrypted. It adds no second problem where the address has one already.
func (s *Settings) checkPlaintext(problems []Problem) []Problem {
	name, address := "forgerun.listen", s.ForgeRun.Listen
	if address == "" {
		name, address = "listen", s.Listen
	}
	if hasProblem(problems, name) || !s.Serves("forgerun") || IsLoopback(address) ||
		s.TLS.Enabled() || s.TrustedNetwork {
		return problems
	}
	return append(problems, Problem{Key: name, Origin: s.origin(name),
		Text: fmt.Sprintf("%q (%s): %s is not loopback and serves forgerun, whose API keys would "+
			"travel in the clear; %s; "+
			"or listen on 127.0.0.1", name, s.origin(name), quote(address), encryptionHint)})
}

// hasProblem reports whether a key is among the problems.
func hasProblem(problems []Problem, key string) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Key == key })
}

const encryptionHint = "set tls.cert and tls.key, or trusted_network = true"

func (s *Settings) checkTLS() []Problem {
	set, missing := "tls.cert", "tls.key"
	if s.TLS.Cert == "" {
		set, missing = missing, set
	}
	if s.TLS.Enabled() || s.TLS.Cert == s.TLS.Key {
		return nil
	}
	return []Problem{{Key: missing, Origin: s.origin(missing),
		Text: fmt.Sprintf("%q is missing: %q is set (%s), and one needs the other", missing, set,
			s.origin(set))}}
}

// checkOpen is the security rule: an unauthenticated contract is served beyond loopback only with a
// token, an operator token, and encryption or a trusted network. It reports one problem for each
// address.
func (s *Settings) checkOpen(valid func(...string) bool) (problems []Problem) {
	open := map[string][]unauthenticatedContract{} // by the key of their address
	for _, c := range unauthenticatedContracts {
		if !s.Serves(c.name) || !valid(c.name+".listen", c.name+".token") {
			continue
		}
		name := "listen"
		if c.listen(s) != "" {
			name = c.name + ".listen"
		}
		open[name] = append(open[name], c)
	}
	for _, name := range sortedNames(open) {
		address := cmp.Or(open[name][0].listen(s), s.Listen)
		tokens, hints := s.missingProtection(open[name])
		if IsLoopback(address) || len(tokens)+len(hints) == 0 {
			continue
		}
		if name == "listen" && s.missesWorkerToken() && valid("worker.token") {
			tokens = append(tokens, "worker.token")
		}
		if len(tokens) > 0 {
			hints = slices.Insert(hints, 0, missingTokensText(tokens))
		}
		problems = append(problems, Problem{Key: name, Origin: s.origin(name),
			Text: fmt.Sprintf("%q (%s): %s is not loopback, and %s; %s; or listen on 127.0.0.1",
				name, s.origin(name), quote(address),
				withoutAuthentication(open[name]), strings.Join(hints, "; "))})
	}
	return problems
}

// missingProtection returns what must be set before the contracts of one address may be reached
// from outside: their tokens, and hints about the other settings.
func (s *Settings) missingProtection(contracts []unauthenticatedContract) (tokens, hints []string) {
	for _, c := range contracts {
		if c.token(s).Empty() {
			tokens = append(tokens, c.name+".token")
		}
	}
	if s.Operator.Token.Empty() {
		hints = append(hints, "set operator.token")
	}
	if !s.TLS.Enabled() && !s.TrustedNetwork {
		hints = append(hints, encryptionHint)
	}
	return tokens, hints
}

// missingTokensText says which tokens are missing, and that one setting serves for all of them.
func missingTokensText(tokens []string) string {
	if len(tokens) == 1 {
		return "set token or " + tokens[0]
	}
	return "set token, which is one for all of them, or each of " + joinAnd(tokens)
}

// withoutAuthentication names the contracts that have no authentication of their own.
func withoutAuthentication(contracts []unauthenticatedContract) string {
	names := make([]string, len(contracts))
	for i, c := range contracts {
		names[i] = c.name
	}
	if len(names) == 1 {
		return names[0] + " has no authentication but a token"
	}
	return joinAnd(names) + " have no authentication but a token"
}

func joinAnd(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
