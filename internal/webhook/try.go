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
	keyHooks    = "webhook_ids"
	keyEvent    = "event_id"
	keyName     = "event_name"
	keyHost     = "host"
	keyError    = telemetry.ErrorMessage
)

const (
	// keptAnswer is how much of an answer is kept (G-FR-48).
	keptAnswer = 4 << 10
	// failingTime is how long no try may succeed before a subscription is disabled.
	failingTime = 24 * time.Hour
	// recordTime bounds reading and writing around a try.
	recordTime = spare / 2
)

// errNobody says that none of the subscriptions of a delivery is there and enabled.
var errNobody = errors.New("the webhook is deleted or disabled")

// attempt is a try under way.
type attempt struct {
	*parcel
	job     *job.Job
	slot    *slot
	at      time.Time
	hooks   map[string]time.Time // that are enabled, with since when they fail
	sealed  []secret
	secrets []string
	err     error // why it is not known who is still there to be told
}

// guarded is deliver, and a panic is a try that failed: it is the trouble of one delivery, not of the process.
func (w *Webhooks) guarded(ctx context.Context, a *attempt) (o engine.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			w.places.cancel(a.slot)
			w.Log.Error("a delivery panicked", append(a.about(), keyError, fmt.Sprint(p), telemetry.Stack, string(debug.Stack()))...)
			o = engine.Outcome{On: job.Failed, Reason: "panic", Delay: w.wait(a.job.Failures+1, 0)}
		}
	}()
	return w.deliver(ctx, a)
}

// deliver makes a try and says how it ended.
func (w *Webhooks) deliver(ctx context.Context, a *attempt) engine.Outcome {
	err := a.err
	if err == nil {
		err = w.unseal(ctx, a)
	}
	switch {
	case errors.Is(err, errNobody):
		w.places.cancel(a.slot)
		w.Log.Warn("a delivery is given up", append(a.about(), keyError, err)...)
		return engine.Outcome{On: job.FailedForGood, Reason: err.Error()}
	case err != nil:
		w.places.cancel(a.slot)
		w.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "a delivery cannot be tried now", append(a.about(), keyError, err)...)
		return engine.Outcome{On: job.Released, Reason: "not now", Delay: notNow}
	}
	began := w.Elapsed()
	t, header, err := w.traced(ctx, a)
	took := w.Elapsed() - began
	t.DurationMS = took.Milliseconds()
	w.places.leave(a.slot, err == nil, took)
	w.Tried(err == nil, took)
	return w.judge(ctx, a, t, header, err)
}

// traced is post within a span.
func (w *Webhooks) traced(ctx context.Context, a *attempt) (Try, http.Header, error) {
	ctx, span := w.Span(telemetry.Resume(ctx, a.job.Trace), attribute.String(telemetry.ClientID, a.Client),
		attribute.String(telemetry.JobID, a.Chain), attribute.String(keyDelivery, a.job.ID.Key),
		attribute.StringSlice(keyHooks, a.Hooks), attribute.String(keyEvent, a.EventID), attribute.String(keyName, a.EventName),
		attribute.Int(telemetry.Attempt, a.job.Failures+1), attribute.String("server.address", a.receiver().host))
	defer span.End()
	t, header, err := w.post(ctx, a)
	if t.StatusCode != nil {
		span.SetAttributes(attribute.Int("http.response.status_code", *t.StatusCode))
	}
	if t.Error != nil {
		telemetry.Fail(span, *t.Error) // not err, which has the whole URL
	}
	return t, header, err
}

// about are the members of a log line: of the URL the host alone, as the rest may be secret.
func (a *attempt) about() []any {
	return []any{telemetry.ClientID, a.Client, telemetry.JobID, a.Chain, keyDelivery, a.job.ID.Key, keyHooks, strings.Join(a.Hooks, " "),
		keyEvent, a.EventID, keyName, a.EventName, keyHost, a.receiver().host, telemetry.Attempt, a.job.Failures + 1}
}

// look finds who is still there to be told by tries that are about to begin.
func (w *Webhooks) look(ctx context.Context, all []*attempt) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	err := w.engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		type seen struct {
			*stored
			err error
		}
		known := map[[2]string]seen{}
		for _, a := range all {
			a.at, a.hooks, a.sealed, a.err = r.Now(), map[string]time.Time{}, nil, nil
			for _, id := range a.Hooks {
				key := [2]string{a.Client, id}
				if _, ok := known[key]; !ok {
					_, s, err := find(r, a.Client, id)
					known[key] = seen{s, err}
				}
				s := known[key]
				if job.IsKind(s.err, job.NotFound) || errors.Is(s.err, ErrForbidden) || s.err == nil && s.Disabled != "" {
					continue
				}
				if s.err != nil {
					a.err = s.err
					continue
				}
				a.hooks[id] = s.FailingSince
				a.sealed = append(a.sealed, valid(s.Secrets, a.at)...)
			}
		}
		return nil
	})
	for _, a := range all {
		if err != nil {
			a.err = err
		}
	}
}

// unseal gets the secrets a try is signed with; errNobody if there are none.
func (w *Webhooks) unseal(ctx context.Context, a *attempt) error {
	for _, s := range a.sealed {
		plain, err := w.Vault.Open(s.Sealed)
		if err != nil {
			return err
		}
		a.secrets = append(a.secrets, string(plain))
	}
	if a.Callback {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		plain, err := w.CallbackSecret(ctx, a.Client)
		if job.IsKind(err, job.NotFound) { // the client is gone
			return errNobody
		}
		if err != nil {
			return err
		}
		a.secrets = append(a.secrets, plain)
	}
	if len(a.secrets) == 0 {
		return errNobody
	}
	return nil
}

// errStatus says that an answer was not 2xx.
var errStatus = errors.New("not a 2xx status")

// post makes the request. The try it returns is complete but for how long it took.
func (w *Webhooks) post(ctx context.Context, a *attempt) (Try, http.Header, error) {
	t := Try{At: a.at}
	resp, text, err := w.exchange(ctx, a)
	if resp != nil {
		t.StatusCode, t.Response = &resp.StatusCode, &text
	}
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode > 299) {
		err = fmt.Errorf("the answer was %d, %w", resp.StatusCode, errStatus)
	}
	if err != nil {
		why := describe(err, w.patience(a.job))
		t.Error = &why
	}
	if resp == nil {
		return t, nil, err
	}
	return t, resp.Header, err
}

// patience is how long a try may take. The lease of a delivery that was made under a shorter Timeout is for that one: with
// more its tries would be over before their end, and begin anew for ever.
func (w *Webhooks) patience(j *job.Job) time.Duration { return min(w.Timeout, j.Lease-spare) }

// exchange sends the request and reads what is kept of the answer. Once there is a status, what goes wrong with the rest
// of the answer is of no concern.
func (w *Webhooks) exchange(ctx context.Context, a *attempt) (*http.Response, string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.patience(a.job))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL, bytes.NewReader(a.job.Payload))
	if err != nil {
		return nil, "", err
	}
	if err := sign(req.Header, a.secrets, a.EventID, a.at, a.job.Payload); err != nil {
		return nil, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	telemetry.Inject(ctx, req.Header)
	resp, err := w.Client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	kept, _ := io.ReadAll(io.LimitReader(resp.Body, keptAnswer))
	return resp, readable(kept), nil
}

// readable is text in valid UTF-8 of at most keptAnswer bytes: a character cut in two at the end goes, other bytes that
// are none become question marks.
func readable(b []byte) string {
	for cut := 1; len(b) == keptAnswer && cut < utf8.UTFMax; cut++ {
		if at := len(b) - cut; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				b = b[:at]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(b), "?")
}

// describe says to a client why there was no good answer: without its URL, whose query may be secret, and without the
// addresses that names have where this runs.
func describe(err error, patience time.Duration) string {
	var refused *egress.Refused
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
		return fmt.Sprintf("no answer within %s", patience)
	case errors.As(err, &dns):
		return "the host is not known"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &wrapped):
		return wrapped.Err.Error()
	}
	return err.Error()
}

// judge says what a try means for its delivery and its subscriptions, and logs it (FR-197).
func (w *Webhooks) judge(ctx context.Context, a *attempt, t Try, header http.Header, err error) engine.Outcome {
	line := append(a.about(), telemetry.Duration, time.Duration(t.DurationMS)*time.Millisecond)
	if t.StatusCode != nil {
		line = append(line, telemetry.Status, *t.StatusCode)
	}
	if t.Error != nil {
		line = append(line, keyError, *t.Error)
	}
	gone := t.StatusCode != nil && *t.StatusCode == http.StatusGone
	last := gone || err != nil && a.job.RunLimit > 0 && a.job.Failures+1 >= a.job.RunLimit
	if line = append(line, "delivered", err == nil, "last", err == nil || last); last {
		w.Log.Warn("a delivery is given up", line...)
	} else {
		w.Log.Debug("a delivery was tried", line...)
	}

	w.note(ctx, a, err == nil, gone)
	o := engine.Outcome{On: job.Succeeded, Progress: appended(a.job, t)}
	switch {
	case gone:
		o.On, o.Reason = job.FailedForGood, reasonGone
	case err != nil:
		o.On, o.Reason = job.Failed, *t.Error
		o.Delay = w.wait(a.job.Failures+1, retryAfter(header, a.at))
	}
	return o
}

// appended is a delivery's tries with one more.
func appended(j *job.Job, t Try) []byte {
	tries, err := triesOf(j)
	if err != nil {
		tries = nil
	}
	body, err := json.Marshal(append(tries, t))
	if err != nil {
		return nil
	}
	return body
}

// note keeps with the subscriptions of a try how it went, where that changes something: since when they fail, and that
// they are disabled. Where it cannot be kept the next try does.
func (w *Webhooks) note(ctx context.Context, a *attempt, ok, gone bool) {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	for id, since := range a.hooks {
		begins := !ok && since.IsZero()
		lasts := !ok && !since.IsZero() && a.at.Sub(since) >= failingTime
		if !gone && !begins && !lasts && (!ok || since.IsZero()) {
			continue
		}
		h, err := w.change(ctx, a.Client, id, func(_ time.Time, s *stored) error {
			switch {
			case ok:
				s.FailingSince = time.Time{}
			case gone:
				s.Disabled = reasonGone
			case s.FailingSince.IsZero():
				s.FailingSince = a.at
			case a.at.Sub(s.FailingSince) >= failingTime:
				s.Disabled = reasonFailing
			}
			return nil
		})
		if err != nil && !job.IsKind(err, job.NotFound) {
			w.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "how a webhook does could not be written", "webhook_id", id, keyError, err)
		}
		if err == nil && h.Disabled {
			w.Log.Warn("a webhook is disabled", telemetry.ClientID, a.Client, "webhook_id", id, "reason", h.DisabledReason)
		}
	}
}
