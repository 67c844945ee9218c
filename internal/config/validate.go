package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// openContract is a contract whose document asks for no credentials (design, section 8).
type openContract struct {
	name   string
	listen func(*Settings) string // its own listener, empty for the common one
	token  func(*Settings) Secret
}

var openContracts = []openContract{
	{"images", func(s *Settings) string { return s.Images.Listen }, func(s *Settings) Secret { return s.Images.Token }},
	{"taskflow", func(s *Settings) string { return s.TaskFlow.Listen }, func(s *Settings) Secret { return s.TaskFlow.Token }},
	{"fetchbox", func(s *Settings) string { return s.FetchBox.Listen }, func(s *Settings) Secret { return s.FetchBox.Token }},
	{"relay", func(s *Settings) string { return s.Relay.Listen }, func(s *Settings) Secret { return s.Relay.Token }},
}

// Validate checks what no key can tell alone. Load has done so; it is for settings made otherwise.
func (s Settings) Validate() error {
	return newError(s.check(nil, nil))
}

// check leaves out a rule when a key it looks at has a problem of its own.
func (s *Settings) check(failed map[string]bool, handlers []string) []Problem {
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
	for _, o := range ordered {
		if sound(o.less, o.more) {
			problems = append(problems, s.checkOrder(o)...)
		}
	}
	problems = append(problems, s.checkQueues(sound)...)
	problems = append(problems, s.checkFetchBox(sound, handlers)...)
	if sound("stream.url", "stream.listen", "stream.token", "trusted_network") {
		problems = append(problems, s.checkStream()...)
	}
	if sound("images.cdn", "images.cdn_url", "images.cloudfront_distribution") {
		problems = append(problems, s.checkImages()...)
	}
	if !sound("listen", "contracts", "operator.token", "tls.cert", "tls.key", "trusted_network") {
		return problems
	}
	for _, c := range openContracts {
		if sound(c.name+".listen", c.name+".token") {
			problems = append(problems, s.checkOpen(c)...)
		}
	}
	if sound("forgerun.listen") {
		problems = s.checkWire(problems)
	}
	if sound("worker.token") {
		problems = s.checkWorkers(problems)
	}
	return problems
}

// order says that one duration is not above another, or below it.
type order struct {
	less, more string
	strictly   bool
	read       func(*Settings) (less, more time.Duration)
}

var ordered = []order{
	{"forgerun.heartbeat", "forgerun.lease", true,
		func(s *Settings) (time.Duration, time.Duration) { return s.ForgeRun.Heartbeat, s.ForgeRun.Lease }},
	{"forgerun.backoff_base", "forgerun.backoff_max", false,
		func(s *Settings) (time.Duration, time.Duration) { return s.ForgeRun.BackoffBase, s.ForgeRun.BackoffMax }},
	{"images.backoff_base", "images.backoff_max", false,
		func(s *Settings) (time.Duration, time.Duration) { return s.Images.BackoffBase, s.Images.BackoffMax }},
	{"webhook.backoff_base", "webhook.backoff_max", false,
		func(s *Settings) (time.Duration, time.Duration) { return s.Webhook.BackoffBase, s.Webhook.BackoffMax }},
}

func (s *Settings) checkOrder(o order) []Problem {
	less, more := o.read(s)
	if less < more || less == more && (!o.strictly || less == 0) {
		return nil
	}
	words := "must not be above"
	if o.strictly {
		words = "must be below"
	}
	return []Problem{{Key: o.less, Origin: s.origin(o.less),
		Text: fmt.Sprintf("%q (%s): %s %s %q, which is %s (%s)", o.less, s.origin(o.less), formatDuration(less), words,
			o.more, formatDuration(more), s.origin(o.more))}}
}

// checkWire is the rule for ForgeRun, whose document knows keys: beyond loopback nobody may read them on the wire. Where
// another contract on the same address has said so already, it says nothing.
func (s *Settings) checkWire(problems []Problem) []Problem {
	name, address := "forgerun.listen", s.ForgeRun.Listen
	if address == "" {
		name, address = "listen", s.Listen
	}
	told := slices.ContainsFunc(problems, func(p Problem) bool { return p.Key == name })
	if told || !s.Serves("forgerun") || IsLoopback(address) || s.TLS.Enabled() || s.TrustedNetwork {
		return problems
	}
	return append(problems, Problem{Key: name, Origin: s.origin(name),
		Text: fmt.Sprintf("%q (%s): %s is not loopback and serves forgerun, whose API keys would travel in the clear; %s; "+
			"or listen on 127.0.0.1", name, s.origin(name), quote(address), closeWire)})
}

const closeWire = "set tls.cert and tls.key, or trusted_network = true"

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
		todo = append(todo, closeWire)
	}
	if len(todo) == 0 {
		return nil
	}
	return []Problem{{Key: name, Origin: s.origin(name),
		Text: fmt.Sprintf("%q (%s): %s is not loopback and serves %s, which is open by its document; %s; "+
			"or listen on 127.0.0.1", name, s.origin(name), quote(address), c.name, strings.Join(todo, "; "))}}
}
