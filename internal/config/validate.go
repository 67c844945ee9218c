package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// unauthenticated returns the contracts whose document requires no credentials.
func (s *Settings) unauthenticated() []*setting.Group {
	return slices.DeleteFunc(slices.Clone(s.groups), func(g *setting.Group) bool {
		return g.Token == nil
	})
}

// unauthenticatedNames returns the names of the unauthenticated contracts.
func (s *Settings) unauthenticatedNames() []string {
	var names []string
	for _, g := range s.unauthenticated() {
		names = append(names, g.Name)
	}
	return names
}

// applyCommonToken gives the common token to the unauthenticated contracts without a token of their
// own, and to the worker API if it serves one of them.
func (s *Settings) applyCommonToken() {
	if s.Token.Empty() {
		return
	}
	apply := func(name string, token *setting.Secret) {
		if token.Empty() {
			*token = s.Token
			s.origins[name] = "token, " + s.origin("token")
		}
	}
	for _, g := range s.unauthenticated() {
		apply(g.Name+".token", g.Token)
		if s.Serves(g.Name) && g.Workers != setting.NoWorkers {
			apply("worker.token", &s.Worker.Token)
		}
	}
}

// check applies the rules across keys, except for those about a key whose own value is invalid.
func (s *Settings) check(failed map[string]bool) []setting.Problem {
	c := &setting.Checker{Origin: s.origin, Failed: failed}
	if c.Valid("tls.cert", "tls.key") {
		s.checkTLS(c)
	}
	for _, g := range slices.Concat(s.groups, s.parts) {
		if g.Check != nil {
			g.Check(c)
		}
	}
	if c.Valid("stream.url", "stream.listen", "stream.token", "trusted_network") {
		s.checkStream(c)
	}
	if c.Valid("operator.token", "operator.read_token") {
		s.checkOperator(c)
	}
	if !c.Valid("listen", "contracts", "token", "operator.token", "tls.cert", "tls.key",
		"trusted_network") {
		return c.Problems
	}
	s.checkOpen(c)
	isReported := c.Has("listen") // which names worker.token as well
	s.checkPlaintext(c)
	if c.Valid("worker.token") && !isReported {
		s.checkWorkers(c)
	}
	return c.Problems
}

// checkPlaintext is the rule for contracts whose clients send API keys: beyond loopback these must
// not travel unencrypted. It adds no second problem where the address has one already.
func (s *Settings) checkPlaintext(c *setting.Checker) {
	for _, g := range s.served() {
		name, address := s.listener(g)
		if g.Token != nil || !c.Valid(g.Name+".listen") || c.Has(name) ||
			setting.IsLoopback(address) || s.TLS.Enabled() || s.TrustedNetwork {
			continue
		}
		c.Reportf(name, "%s is not loopback and serves %s, whose API keys would travel in the "+
			"clear; %s; or listen on 127.0.0.1", setting.Quote(address), g.Name, encryptionHint)
	}
}

// listener returns the setting and the address that a contract is served on.
func (s *Settings) listener(g *setting.Group) (name, address string) {
	if *g.Listen == "" {
		return "listen", s.Listen
	}
	return g.Name + ".listen", *g.Listen
}

// encryptionHint says how a listener beyond loopback is protected from eavesdropping.
const encryptionHint = "set tls.cert and tls.key, or trusted_network = true"

// checkTLS reports a certificate without a key, or a key without a certificate.
func (s *Settings) checkTLS(c *setting.Checker) {
	set, missing := "tls.cert", "tls.key"
	if s.TLS.Cert == "" {
		set, missing = missing, set
	}
	if s.TLS.Enabled() || s.TLS.Cert == s.TLS.Key {
		return
	}
	c.Report(missing, fmt.Sprintf("%q is missing: %q is set (%s), and one needs the other", missing,
		set, s.origin(set)))
}

// checkOpen is the security rule: an unauthenticated contract is served beyond loopback only with a
// token, an operator token, and encryption or a trusted network. It reports one problem for each
// address.
func (s *Settings) checkOpen(c *setting.Checker) {
	open := map[string][]*setting.Group{} // by the key of their address
	for _, g := range s.unauthenticated() {
		if s.Serves(g.Name) && c.Valid(g.Name+".listen", g.Name+".token") {
			name, _ := s.listener(g)
			open[name] = append(open[name], g)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		address := cmp.Or(*open[name][0].Listen, s.Listen)
		tokens, hints := s.missingProtection(open[name])
		if setting.IsLoopback(address) || len(tokens)+len(hints) == 0 {
			continue
		}
		if name == "listen" && s.missesWorkerToken() && c.Valid("worker.token") {
			tokens = append(tokens, "worker.token")
		}
		if len(tokens) > 0 {
			hints = slices.Insert(hints, 0, missingTokensText(tokens))
		}
		c.Reportf(name, "%s is not loopback, and %s; %s; or listen on 127.0.0.1",
			setting.Quote(address), withoutAuthentication(open[name]), strings.Join(hints, "; "))
	}
}

// missingProtection returns what must be set before the contracts of one address may be reached
// from outside: their tokens, and hints about the other settings.
func (s *Settings) missingProtection(contracts []*setting.Group) (tokens, hints []string) {
	for _, c := range contracts {
		if c.Token.Empty() {
			tokens = append(tokens, c.Name+".token")
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
func withoutAuthentication(contracts []*setting.Group) string {
	names := make([]string, len(contracts))
	for i, c := range contracts {
		names[i] = c.Name
	}
	if len(names) == 1 {
		return names[0] + " has no authentication but a token"
	}
	return joinAnd(names) + " have no authentication but a token"
}

// joinAnd lists words in a sentence: "a, b and c".
func joinAnd(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
