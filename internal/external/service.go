package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
)

// service calls a URL:
//
//	response                            the call
//	2xx                                 has the body as its answer
//	408, 429, 5xx, time-out, no answer  failed, and may succeed when it is repeated
//	any other, also a redirect          failed, and would fail again
type service struct {
	Settings
	client webhook.Doer
	now    func() time.Time
}

// Call implements Handler. The answer has one byte more than MaxOutput at most, by which the caller
// recognises one that is too long.
func (s *service) Call(ctx context.Context, c *Call) (Answer, error) {
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	status, body, err := s.send(within, c)
	switch {
	case ctx.Err() != nil:
		return Answer{}, context.Cause(ctx)
	case err != nil:
		message, kind := s.describeError(err)
		return Answer{}, &Failure{Type: kind, Message: message, Retryable: true}
	case status >= 200 && status <= 299:
		return Answer{Body: body}, nil
	}
	message := fmt.Sprintf("the answer was %d %s", status, http.StatusText(status))
	return Answer{}, &Failure{Type: typeStatus + strconv.Itoa(status),
		Message: strings.TrimSpace(message),
		Retryable: status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
			status >= http.StatusInternalServerError}
}

// send makes the request and reads the body of a successful response. The body of any other
// response is not read. An error means that there is no complete answer, even if a status was
// received.
func (s *service) send(ctx context.Context, c *Call) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(c.Body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, n := range c.Names {
		req.Header.Set("Millrace-"+n.Name, n.Value)
	}
	if secret := s.Secret.Reveal(); secret != "" {
		if err := webhook.Sign(req.Header, secret, c.ID, s.now(), c.Body); err != nil {
			return 0, nil, err
		}
	}
	telemetry.Inject(telemetry.Resume(ctx, c.Trace), req.Header)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, nil, nil
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, s.MaxOutput+1))
	return resp.StatusCode, body, err
}

// describeError says why there was no complete answer. It leaves out the resolved addresses, which
// are internal to the server's network: clients read both texts. kind is refused, timeout or
// connection.
func (s *service) describeError(err error) (message, kind string) {
	var refused *egress.RefusedError
	var dns *net.DNSError
	var op *net.OpError
	var timeout net.Error
	var wrapped *url.Error
	switch {
	case errors.As(err, &refused):
		return fmt.Sprintf("the address is refused: %s", refused.Class), typeRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %s", s.Timeout), typeTimeout
	case errors.As(err, &dns):
		return "the host is unknown", typeConnection
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error(), typeConnection
	case errors.As(err, &wrapped):
		return wrapped.Err.Error(), typeConnection
	}
	return err.Error(), typeConnection
}
