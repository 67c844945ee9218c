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

// Keys of log lines, besides those of telemetry.
const (
	keyDelivery    = "delivery_id"
	keyWebhooks    = "webhook_ids"
	keyEvent       = "event_id"
	keyName        = "event_name"
	keyJobContract = "job_contract" // telemetry.Contract names the contract of the delivery
	keyHost        = "host"
	keyError       = telemetry.ErrorMessage
)

const (
	// maxResponseBytes is how much of a response is stored with the attempt (G-FR-48).
	maxResponseBytes = 4 << 10
	// disableAfter is how long all attempts must fail before a subscription is disabled.
	disableAfter = 24 * time.Hour
	// recordTimeout bounds reading records before an attempt, and writing them after it.
	recordTimeout = writeMargin / 2
)

// errNoRecipient reports that every subscription of a delivery is deleted or disabled.
var errNoRecipient = errors.New("the webhook is deleted or disabled")

// execution is an attempt in flight, from the claim that admitted it to its outcome. The dispatcher
// fills in the delivery, its job and its slot; loadRecipients and loadSecrets add what the request
// needs.
type execution struct {
	*delivery
	job           *job.Job
	slot          *slot
	startedAt     time.Time
	failingSince  map[string]time.Time // record.FailingSince of each enabled subscription
	sealedSecrets []secret
	secrets       []string
	loadErr       error // of loadRecipients
}

// deliver makes an attempt and returns its outcome. An attempt that was cut short, because its run
// is lost or the node stops, says nothing about the receiver and is released. A delivery without a
// recipient ends as exhausted (FR-188); one whose secrets cannot be read now is released and uses
// up no attempt.
func (w *Webhooks) deliver(ctx context.Context, a *execution) engine.Outcome {
	err := w.loadSecrets(ctx, a)
	switch {
	case errors.Is(err, errNoRecipient):
		w.Log.Warn("a delivery is given up", append(w.logAttrs(a), keyError, err)...)
		return engine.Outcome{On: job.FailedForGood, Reason: err.Error(),
			Failure: encodeFailure(err.Error()), NoAttempt: true}
	case err != nil:
		w.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "a delivery cannot be tried now",
			append(w.logAttrs(a), keyError, err)...)
		return engine.Outcome{On: job.Released, Reason: "not now", Delay: releaseDelay,
			NoAttempt: true}
	}
	startedAt := w.Elapsed()
	t, header, err := w.postTraced(ctx, a)
	took := w.Elapsed() - startedAt
	if err != nil && ctx.Err() != nil {
		return engine.Outcome{On: job.Released, Reason: "cut short"}
	}
	t.DurationMS = took.Milliseconds()
	w.destinations.release(a.slot, err == nil, took)
	w.OnAttempt(err == nil, took)
	return w.decideOutcome(ctx, a, t, header, err)
}

// postTraced calls post within a span.
func (w *Webhooks) postTraced(ctx context.Context, a *execution) (Attempt, http.Header, error) {
	ctx, span := w.StartSpan(telemetry.Resume(ctx, a.job.Trace),
		attribute.String(keyDelivery, a.job.ID.Key),
		attribute.StringSlice(keyWebhooks, a.SubscriptionIDs),
		attribute.String(keyEvent, a.EventID), attribute.String(keyName, a.EventName),
		attribute.Int(telemetry.Attempt, a.job.FailedAttempts+1),
		attribute.String("server.address", a.receiver().host))
	defer span.End()
	for _, about := range w.attrs(a.delivery) {
		span.SetAttributes(attribute.String(about.Key, about.Value.String()))
	}
	t, header, err := w.post(ctx, a)
	if t.StatusCode != nil {
		span.SetAttributes(attribute.Int("http.response.status_code", *t.StatusCode))
	}
	if t.Error != nil {
		telemetry.FailSpan(span, *t.Error) // err would show the whole URL
	}
	return t, header, err
}

// logAttrs returns the attributes of a log line. Of the URL only the host is logged, since its path
// and query may be secret. A callback has no webhook_ids.
func (w *Webhooks) logAttrs(a *execution) []any {
	attrs := []any{
		keyDelivery, a.job.ID.Key,
		keyEvent, a.EventID,
		keyName, a.EventName,
		keyHost, a.receiver().host,
		telemetry.Attempt, a.job.FailedAttempts + 1,
	}
	for _, about := range w.attrs(a.delivery) {
		attrs = append(attrs, about)
	}
	if len(a.SubscriptionIDs) > 0 {
		attrs = append(attrs, keyWebhooks, strings.Join(a.SubscriptionIDs, " "))
	}
	return attrs
}

// loadRecipients loads the subscriptions of attempts that are about to begin, each once, and leaves
// out those that are deleted or disabled. Errors are kept with the executions. One transaction
// reads for all attempts of a claim, which often have the same subscriptions.
func (w *Webhooks) loadRecipients(ctx context.Context, all []*execution) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err := w.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		loaded := map[[2]string]loadedRecord{}
		for _, a := range all {
			a.startedAt, a.failingSince = r.Now(), map[string]time.Time{}
			a.sealedSecrets, a.loadErr = nil, nil
			for _, id := range a.SubscriptionIDs {
				key := [2]string{a.Client, id}
				if _, ok := loaded[key]; !ok {
					_, s, err := findSubscription(r, a.Client, id)
					loaded[key] = loadedRecord{s, err}
				}
				a.addRecipient(id, loaded[key])
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

// loadedRecord is a subscription as loadRecipients found it, or the error for which it could not.
type loadedRecord struct {
	*record
	err error
}

// addRecipient adds the secrets of a subscription to an attempt. A subscription that was deleted or
// disabled since the event signs nothing: the request goes out for the others (FR-188).
func (a *execution) addRecipient(id string, loaded loadedRecord) {
	switch {
	case job.IsKind(loaded.err, job.NotFound), errors.Is(loaded.err, ErrForbidden):
		return
	case loaded.err != nil:
		a.loadErr = loaded.err
		return
	case loaded.Disabled != "":
		return
	}
	if loaded.Operator != nil {
		a.URL = loaded.URL // it may have been corrected since
	}
	a.failingSince[id] = loaded.FailingSince
	a.sealedSecrets = append(a.sealedSecrets, validSecrets(loaded.Secrets, a.startedAt)...)
}

// loadSecrets opens the secrets that an attempt is signed with. It returns the error of
// loadRecipients if there was one, and errNoRecipient if there are no secrets.
func (w *Webhooks) loadSecrets(ctx context.Context, a *execution) error {
	if a.loadErr != nil {
		return a.loadErr
	}
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
		plain, err := w.callbackSecret(ctx, a.Client)
		if job.IsKind(err, job.NotFound) { // the client, or contract, does not exist any more
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

// errStatus reports that the status of a response was not 2xx.
var errStatus = errors.New("not a 2xx status")

// post makes the request. It returns the attempt without its duration, and the header of the
// response if there was one.
func (w *Webhooks) post(ctx context.Context, a *execution) (Attempt, http.Header, error) {
	t := Attempt{StartedAt: a.startedAt}
	resp, text, err := w.exchange(ctx, a)
	if err != nil {
		reason := describeError(err, w.Timeout)
		t.Error = &reason
		return t, nil, err
	}
	t.StatusCode, t.Response = &resp.StatusCode, &text
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		err = fmt.Errorf("the answer was %d, %w", resp.StatusCode, errStatus)
		reason := err.Error()
		t.Error = &reason
	}
	return t, resp.Header, err
}

// exchange sends the request and reads the beginning of the response. The status decides the
// outcome, so an error while the body is read is ignored. Redirects are not followed and are a
// failed attempt like any other status (G-FR-48), and the address is checked when the connection is
// made (G-FR-50): both are promises of Config.Client.
func (w *Webhooks) exchange(ctx context.Context, a *execution) (*http.Response, string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
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

// truncateUTF8 returns valid UTF-8. A character that the limit has cut in two is removed; other
// invalid bytes become question marks.
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

// describeError returns why a receiver gave no answer, for its client. It leaves out the URL, whose
// query may be secret, and the resolved addresses, which are internal to the server's network.
func describeError(err error, limit time.Duration) string {
	var refused *egress.RefusedError
	var dns *net.DNSError
	var op *net.OpError
	var wrapped *url.Error
	var timeout net.Error
	switch {
	case errors.As(err, &refused):
		return fmt.Sprintf("the address is refused: %s", refused.Class)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %s", limit)
	case errors.As(err, &dns):
		return "the host is unknown"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &wrapped):
		return wrapped.Err.Error()
	}
	return err.Error()
}

// decideOutcome returns what an attempt means for its delivery, updates its subscriptions and logs
// the attempt (FR-197).
func (w *Webhooks) decideOutcome(ctx context.Context, a *execution, t Attempt, header http.Header,
	err error) engine.Outcome {
	attrs := append(w.logAttrs(a), telemetry.Duration, time.Duration(t.DurationMS)*time.Millisecond)
	if t.StatusCode != nil {
		attrs = append(attrs, telemetry.Status, *t.StatusCode)
	}
	if t.Error != nil {
		attrs = append(attrs, keyError, *t.Error)
	}
	succeeded := err == nil
	gone := t.StatusCode != nil && *t.StatusCode == http.StatusGone
	attemptsUsedUp := a.job.MaxAttempts > 0 && a.job.FailedAttempts+1 >= a.job.MaxAttempts
	givenUp := !succeeded && (gone || attemptsUsedUp)
	attrs = append(attrs, "delivered", succeeded, "last", succeeded || givenUp)
	if givenUp {
		w.Log.Warn("a delivery is given up", attrs...)
	} else {
		w.Log.Debug("a delivery was tried", attrs...)
	}

	w.recordResult(ctx, a, succeeded, gone)
	o := engine.Outcome{On: job.Succeeded, Progress: appendAttempt(a.job, t)}
	switch {
	case gone:
		o.On, o.Reason = job.FailedForGood, reasonGone
	case err != nil:
		o.On, o.Reason = job.Failed, *t.Error
		o.Delay = w.retryDelay(a.job.FailedAttempts+1,
			egress.RetryAfter(header, a.startedAt, maxRetryAfter))
	}
	if givenUp {
		o.Failure = encodeFailure(*t.Error)
	}
	return o
}

// encodeFailure returns why a delivery is given up, as its dead letter has it.
func encodeFailure(text string) []byte {
	body, err := json.Marshal(map[string]string{"error": text})
	if err != nil {
		return nil
	}
	return body
}

// appendAttempt returns the encoded attempts of a delivery with one more. Attempts that cannot be
// read are dropped, as the delivery itself matters more than its history.
func appendAttempt(j *job.Job, t Attempt) []byte {
	attempts, err := decodeAttempts(j)
	if err != nil {
		attempts = nil
	}
	body, err := json.Marshal(append(attempts, t))
	if err != nil {
		return nil
	}
	return body
}

// recordResult stores with the subscriptions of an attempt since when their attempts have failed
// and whether they are disabled, if the attempt changes that. If it cannot be stored, the next
// attempt does it. Only an attempt that changes the record writes it, so a healthy subscription
// costs no write.
func (w *Webhooks) recordResult(ctx context.Context, a *execution, ok, gone bool) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for id, since := range a.failingSince {
		recovers := ok && !since.IsZero()
		startsFailing := !ok && since.IsZero()
		failsTooLong := !ok && !since.IsZero() && a.startedAt.Sub(since) >= disableAfter
		if !gone && !startsFailing && !failsTooLong && !recovers {
			continue
		}
		update := func(_ engine.RecordWriter, s *record) error {
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
		}
		h, err := w.updateSubscription(ctx, a.Client, id, update)
		switch {
		case job.IsKind(err, job.NotFound): // deleted meanwhile
		case err != nil:
			w.Log.Log(ctx, outage.Level(slog.LevelWarn, err),
				"the failures of a webhook could not be stored", "webhook_id", id, keyError, err)
		case h.Disabled:
			attrs := []any{"webhook_id", id, "reason", h.DisabledReason}
			if a.Client != Operators {
				attrs = append(attrs, telemetry.ClientID, a.Client)
			}
			w.Log.Warn("a webhook is disabled", attrs...)
		}
	}
}

// maxRetryAfter bounds the delay that a receiver may ask for, so that a wrong header cannot hold a
// delivery for ever.
const maxRetryAfter = 24 * time.Hour

// retryDelay returns the delay before the next attempt. With the defaults (1 s, ×5, 2 h) eight
// attempts take about three hours (G-FR-48). A receiver may ask for more than that, not for less:
// the attempts must outlast an outage that is longer than the receiver expects.
func (w *Webhooks) retryDelay(n int, requested time.Duration) time.Duration {
	return max(job.Varied(w.BackoffBase, w.BackoffMax, w.BackoffFactor, n, w.randomFloat()),
		requested).Truncate(time.Microsecond)
}
