package config

import (
	"fmt"
	"strings"
)

// openContract is a contract whose document asks for no credentials (design, section 8).
type openContract struct {
	name   string
	listen func(*Settings) string // its own listener, empty for the common one
	token  func(*Settings) Secret
}

var openContracts = []openContract{
	{"relay", func(s *Settings) string { return s.Relay.Listen }, func(s *Settings) Secret { return s.Relay.Token }},
}

// Validate checks what no key can tell alone. Load has done so; it is for settings made otherwise.
func (s Settings) Validate() error {
	return newError(s.check(nil))
}

// check leaves out a rule when a key it looks at has a problem of its own.
func (s *Settings) check(failed map[string]bool) []Problem {
	var problems []Problem
	sound := func(names ...string) bool {
		for _, n := range names {
			if failed[n] {
				return false
			}
		}
		return true
	}
	if sound("tls.cert", "tls.key") {
		problems = append(problems, s.checkTLS()...)
	}
	if !sound("listen", "contracts", "operator.token", "tls.cert", "tls.key", "trusted_network") {
		return problems
	}
	for _, c := range openContracts {
		if sound(c.name+".listen", c.name+".token") {
			problems = append(problems, s.checkOpen(c)...)
		}
	}
	return problems
}

func (s *Settings) checkTLS() []Problem {
	set, missing := "tls.cert", "tls.key"
	if s.TLS.Cert == "" {
		set, missing = missing, set
	}
	if s.TLS.Enabled() || s.TLS.Cert == s.TLS.Key {
		return nil
	}
	return []Problem{{Key: missing, Origin: s.origin(missing),
		Text: fmt.Sprintf("%q is missing: %q is set (%s), and one needs the other", missing, set, s.origin(set))}}
}

// checkOpen is the security rule: an open contract leaves loopback with a token of its own, a known operator token, and
// a wire that nobody reads.
func (s *Settings) checkOpen(c openContract) []Problem {
	name, address := c.name+".listen", c.listen(s)
	if address == "" {
		name, address = "listen", s.Listen
	}
	if !s.Serves(c.name) || IsLoopback(address) {
		return nil
	}
	var todo []string
	if c.token(s).Empty() {
		todo = append(todo, "set "+c.name+".token")
	}
	if s.Operator.Token.Empty() {
		todo = append(todo, "set operator.token")
	}
	if !s.TLS.Enabled() && !s.TrustedNetwork {
		todo = append(todo, "set tls.cert and tls.key, or trusted_network = true")
	}
	if len(todo) == 0 {
		return nil
	}
	return []Problem{{Key: name, Origin: s.origin(name),
		Text: fmt.Sprintf("%q (%s): %s is not loopback and serves %s, which is open by its document; %s; "+
			"or listen on 127.0.0.1", name, s.origin(name), quote(address), c.name, strings.Join(todo, "; "))}}
}
