package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// Callback is the destination of the events of one job (WH-005). It is a column of the job, so that
// a change shows without another read whether an event has to be sent.
type Callback struct {
	URL string
	// Events are types, or patterns with *, of the events of the job; none: the final ones.
	Events []string
}

// maxCallbackEvents bounds the events that a callback names.
const maxCallbackEvents = 20

// Encode returns a callback as a job keeps it. It refuses events that are none of types, which are
// those that the job may have. The URL has passed egress.ParseURL.
func (c *Callback) Encode(types []string) (string, error) {
	if len(c.Events) > maxCallbackEvents {
		return "", fmt.Errorf("there may be %d events", maxCallbackEvents)
	}
	for i, pattern := range c.Events {
		isMeant := func(t string) bool { return MatchType(pattern, t) }
		if !isPattern(pattern) || !slices.ContainsFunc(types, isMeant) {
			return "", fmt.Errorf("event %d must be one of %s", i, strings.Join(types, ", "))
		}
	}
	return strings.Join(append([]string{c.URL}, c.Events...), " "), nil // none has a blank
}

// DecodeCallback is the inverse of Encode. The zero Callback is none.
func DecodeCallback(encoded string) (c Callback) {
	if words := strings.Fields(encoded); len(words) > 0 {
		c.URL, c.Events = words[0], words[1:]
	}
	return c
}

// callbackTypes returns those of the types of a change that the callback of its job gets.
func (a *subscriptions) callbackTypes(j *job.Job, types []string) (wanted []string) {
	if j.Callback == "" {
		return nil
	}
	c := DecodeCallback(j.Callback)
	for _, t := range types {
		isMeant := func(pattern string) bool { return MatchType(pattern, t) }
		if (len(c.Events) == 0 && a.IsFinal(t)) || slices.ContainsFunc(c.Events, isMeant) {
			wanted = append(wanted, t)
		}
	}
	return wanted
}

// contractPrefix begins the client of the callbacks of a contract's jobs, in the place of the id of
// a client.
const contractPrefix = "contract/"

// callBack returns the delivery of an event to the callback of its job. The deliveries of one job
// form a chain.
func (h *feedMessage) callBack(w *Webhooks, m *job.Message, eventType,
	eventID string) (engine.Submission, error) {
	p := delivery{EventID: eventID, EventName: eventType, URL: h.Callback,
		Client: contractPrefix + h.Contract, Chain: h.Chain, Callback: true,
		JobID: h.JobID, JobContract: h.Contract}
	s, err := p.submission(w, digestID("delivery", p.Client, eventID),
		h.body(eventType, m.At, false), h.Trace)
	s.Job.Alias = job.AliasOf(Name, p.Client, h.Chain)
	return s, err
}

// callbackSecret returns the secret that signs the requests to a callback. NotFound if the client
// or the contract does not exist any more.
func (w *Webhooks) callbackSecret(ctx context.Context, client string) (string, error) {
	name, ofContract := strings.CutPrefix(client, contractPrefix)
	switch {
	case !ofContract:
		return w.CallbackSecret(ctx, client)
	case w.ContractSecret == nil:
		return "", errNotFound("contract")
	}
	return w.ContractSecret(ctx, name)
}
