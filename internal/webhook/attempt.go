package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// Keys of log lines besides those everybody has.
const (
	keyDelivery = "delivery_id"
	keyWebhooks = "webhook_ids"
	keyEvent    = "event_id"
	keyName     = "event_name"
	keyHost     = "host"
	keyError    = telemetry.ErrorMessage
)

const (
	// maxResponseBytes is how much of an answer is kept (G-FR-48).
	maxResponseBytes = 4 << 10
	// disableAfter is how long no try may succeed before a subscription is disabled.
	disableAfter = 24 * time.Hour
	// recordTimeout bounds reading and writing around a try.
	recordTimeout = writeMargin / 2
)

// errNoRecipient says that none of the subscriptions of a delivery is there and enabled.
var errNoRecipient = errors.New("the webhook is deleted or disabled")

// attempt is a try under way.
type attempt struct {
	*delivery
	job           *job.Job
	slot          *slot
	startedAt     time.Time
	failingSince  map[string]time.Time // that are enabled, with since when they fail
	sealedSecrets []secret
	secrets       []string
	loadErr       error // why it is not known who is still there to be told
}

// deliverRecovered is deliver, and a panic is a try that failed: it is the trouble of one delivery,
// not of the process.
func (w *Webhooks) deliverRecovered(ctx context.Context, a *attempt) (o engine.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			w.destinations.releaseUnused(a.slot)
			w.Log.Error("a delivery panicked",
				append(a.logAttrs(), keyError, fmt.Sprint(p), telemetry.Stack,
					string(debug.Stack()))...)
			o = engine.Outcome{On: job.Failed, Reason: "panic",
				Delay: w.retryDelay(a.job.FailedAttempts+1, 0)}
		}
	}()
	return w.deliver(ctx, a)
}

// deliver makes a try and says how it ended.
func (w *Webhooks) deliver(ctx context.Context, a *attempt) engine.Outcome {
	err := a.loadErr
	if err == nil {
		err = w.loadSecrets(ctx, a)
	}
	switch {
	case errors.Is(err, errNoRecipient):
		w.destinations.releaseUnused(a.slot)
		w.Log.Warn("a delivery is given up", append(a.logAttrs(), keyError, err)...)
		return engine.Outcome{On: job.FailedForGood, Reason: err.Error()}
	case err != nil:
		w.destinations.releaseUnused(a.slot)
		w.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "a delivery cannot be tried now",
			append(a.logAttrs(), keyError, err)...)
		return engine.Outcome{On: job.Released, Reason: "not now", Delay: releaseDelay}
	}
	startedAt := w.Elapsed()
	t, header, err := w.postTraced(ctx, a)
	took := w.Elapsed() - startedAt
	t.DurationMS = took.Milliseconds()
	w.destinations.release(a.slot, err == nil, took)
	w.OnTry(err == nil, took)
	return w.decideOutcome(ctx, a, t, header, err)
}

// postTraced is post within a span.
func (w *Webhooks) postTraced(ctx context.Context, a *attempt) (Try, http.Header, error) {
	ctx, span := w.StartSpan(telemetry.Resume(ctx, a.job.Trace),
		attribute.String(telemetry.ClientID, a.Client),
		attribute.String(telemetry.JobID, a.Chain), attribute.String(keyDelivery, a.job.ID.Key),
		attribute.StringSlice(keyWebhooks, a.SubscriptionIDs),
		attribute.String(keyEvent, a.EventID), attribute.String(keyName, a.EventName),
		attribute.Int(telemetry.Attempt, a.job.FailedAttempts+1),
		attribute.String("server.address", a.receiver().host))
	defer span.End()
	t, header, err := w.post(ctx, a)
	if t.StatusCode != nil {
		span.SetAttributes(attribute.Int("http.response.status_code", *t.StatusCode))
	}
	if t.Error != nil {
		telemetry.FailSpan(span, *t.Error) // not err, which has the whole URL
	}
	return t, header, err
}

// logAttrs are the members of a log line: of the URL the host alone, as the rest may be secret.
func (a *attempt) logAttrs() []any {
	return []any{telemetry.ClientID, a.Client, telemetry.JobID, a.Chain, keyDelivery, a.job.ID.Key,
		keyWebhooks, strings.Join(a.SubscriptionIDs, " "),
		keyEvent, a.EventID, keyName, a.EventName, keyHost, a.receiver().host, telemetry.Attempt,
		a.job.FailedAttempts + 1}
}

// loadRecipients finds who is still there to be told by tries that are about to begin.
func (w *Webhooks) loadRecipients(ctx context.Context, all []*attempt) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err := w.engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		type result struct {
			*record
			err error
		}
		byID := map[[2]string]result{}
		for _, a := range all {
			a.startedAt, a.failingSince, a.sealedSecrets, a.loadErr = r.Now(),
				map[string]time.Time{}, nil, nil
			for _, id := range a.SubscriptionIDs {
				key := [2]string{a.Client, id}
				if _, ok := byID[key]; !ok {
					_, s, err := findSubscription(r, a.Client, id)
					byID[key] = result{s, err}
				}
				s := byID[key]
				if job.IsKind(s.err, job.NotFound) || errors.Is(s.err, ErrForbidden) ||
					(s.err == nil && s.Disabled != "") {
					continue
				}
				if s.err != nil {
					a.loadErr = s.err
					continue
				}
				a.failingSince[id] = s.FailingSince
				a.sealedSecrets = append(a.sealedSecrets, validSecrets(s.Secrets, a.startedAt)...)
			}
		}
		return nil
	})
	for _, a := range all {
		if err != nil {
			a.loadErr = err
		}
	}
}

// loadSecrets gets the secrets a try is signed with; errNoRecipient if there are none.
func (w *Webhooks) loadSecrets(ctx context.Context, a *attempt) error {
	for _, s := range a.sealedSecrets {
		plain, err := w.Vault.Open(s.Sealed)
		if err != nil {
			return err
		}
		a.secrets = append(a.secrets, string(plain))
	}
	if a.Callback {
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		plain, err := w.CallbackSecret(ctx, a.Client)
		if job.IsKind(err, job.NotFound) { // the client is gone
			return errNoRecipient
		}
		if err != nil {
			return err
		}
		a.secrets = append(a.secrets, plain)
	}
	if len(a.secrets) == 0 {
		return errNoRecipient
	}
	return nil
}

// errStatus says that an answer was not 2xx.
var errStatus = errors.New("not a 2xx status")

// post makes the request. The try it returns is complete but for how long it took.
func (w *Webhooks) post(ctx context.Context, a *attempt) (Try, http.Header, error) {
	t := Try{StartedAt: a.startedAt}
	resp, text, err := w.exchange(ctx, a)
	if resp != nil {
		t.StatusCode, t.Response = &resp.StatusCode, &text
	}
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode > 299) {
		err = fmt.Errorf("the answer was %d, %w", resp.StatusCode, errStatus)
	}
	if err != nil {
		reason := describeError(err, w.tryTimeout(a.job))
		t.Error = &reason
	}
	if resp == nil {
		return t, nil, err
	}
	return t, resp.Header, err
}

// tryTimeout is how long a try may take. The lease of a delivery that was made under a shorter
// Timeout is for that one: with more its tries would be over before their end, and begin anew for
// ever.
func (w *Webhooks) tryTimeout(j *job.Job) time.Duration {
	return min(w.Timeout, j.Lease-writeMargin)
}

// exchange sends the request and reads what is kept of the answer. Once there is a status, what
// goes wrong with the rest of the answer is of no concern.
func (w *Webhooks) exchange(ctx context.Context, a *attempt) (*http.Response, string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.tryTimeout(a.job))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL,
		bytes.NewReader(a.job.Payload))
	if err != nil {
		return nil, "", err
	}
	if err := sign(req.Header, a.secrets, a.EventID, a.startedAt, a.job.Payload); err != nil {
		return nil, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	telemetry.Inject(ctx, req.Header)
	resp, err := w.Client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	kept, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	return resp, truncateUTF8(kept), nil
}

// truncateUTF8 is text in valid UTF-8 of at most maxResponseBytes bytes: a character cut in two at
// the end goes, other bytes that are none become question marks.
func truncateUTF8(b []byte) string {
	for cut := 1; len(b) == maxResponseBytes && cut < utf8.UTFMax; cut++ {
		if at := len(b) - cut; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				b = b[:at]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(b), "?")
}

// describeError says to a client why there was no good answer: without its URL, whose query may be
// secret, and without the addresses that names have where this runs.
func describeError(err error, limit time.Duration) string {
	var refused *egress.RefusedError
	var dns *net.DNSError
	var op *net.OpError
	var wrapped *url.Error
	var timeout net.Error
	switch {
	case errors.Is(err, errStatus):
		return err.Error()
	case errors.As(err, &refused):
		return fmt.Sprintf("the address is refused: %s", refused.Class)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %s", limit)
	case errors.As(err, &dns):
		return "the host is not known"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &wrapped):
		return wrapped.Err.Error()
	}
	return err.Error()
}

// decideOutcome says what a try means for its delivery and its subscriptions, and logs it (FR-197).
func (w *Webhooks) decideOutcome(ctx context.Context, a *attempt, t Try, header http.Header,
	err error) engine.Outcome {
	attrs := append(a.logAttrs(), telemetry.Duration, time.Duration(t.DurationMS)*time.Millisecond)
	if t.StatusCode != nil {
		attrs = append(attrs, telemetry.Status, *t.StatusCode)
	}
	if t.Error != nil {
		attrs = append(attrs, keyError, *t.Error)
	}
	gone := t.StatusCode != nil && *t.StatusCode == http.StatusGone
	last := gone || (err != nil && a.job.MaxAttempts > 0 &&
		a.job.FailedAttempts+1 >= a.job.MaxAttempts)
	if attrs = append(attrs, "delivered", err == nil, "last", err == nil || last); last {
		w.Log.Warn("a delivery is given up", attrs...)
	} else {
		w.Log.Debug("a delivery was tried", attrs...)
	}

	w.recordTryResult(ctx, a, err == nil, gone)
	o := engine.Outcome{On: job.Succeeded, Progress: appendTry(a.job, t)}
	switch {
	case gone:
		o.On, o.Reason = job.FailedForGood, reasonGone
	case err != nil:
		o.On, o.Reason = job.Failed, *t.Error
		o.Delay = w.retryDelay(a.job.FailedAttempts+1, parseRetryAfter(header, a.startedAt))
	}
	return o
}

// appendTry is a delivery's tries with one more.
func appendTry(j *job.Job, t Try) []byte {
	tries, err := decodeTries(j)
	if err != nil {
		tries = nil
	}
	body, err := json.Marshal(append(tries, t))
	if err != nil {
		return nil
	}
	return body
}

// recordTryResult keeps with the subscriptions of a try how it went, where that changes something:
// since when they fail, and that they are disabled. Where it cannot be kept the next try does.
func (w *Webhooks) recordTryResult(ctx context.Context, a *attempt, ok, gone bool) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for id, since := range a.failingSince {
		startsFailing := !ok && since.IsZero()
		failsTooLong := !ok && !since.IsZero() && a.startedAt.Sub(since) >= disableAfter
		if !gone && !startsFailing && !failsTooLong && (!ok || since.IsZero()) {
			continue
		}
		h, err := w.updateSubscription(ctx, a.Client, id, func(_ time.Time, s *record) error {
			switch {
			case ok:
				s.FailingSince = time.Time{}
			case gone:
				s.Disabled = reasonGone
			case s.FailingSince.IsZero():
				s.FailingSince = a.startedAt
			case a.startedAt.Sub(s.FailingSince) >= disableAfter:
				s.Disabled = reasonFailing
			}
			return nil
		})
		if err != nil && !job.IsKind(err, job.NotFound) {
			w.Log.Log(ctx, outage.Level(slog.LevelWarn, err),
				"how a webhook does could not be written", "webhook_id", id, keyError, err)
		}
		if err == nil && h.Disabled {
			w.Log.Warn("a webhook is disabled", telemetry.ClientID, a.Client, "webhook_id", id,
				"reason", h.DisabledReason)
		}
	}
}
