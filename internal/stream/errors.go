package stream

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/job"
)

// wrapError gives an error a kind, unless it has one. A request that the server refuses as wrong is
// a defect of this program; every other error between here and a stream may pass.
func wrapError(op, msg string, err error) error {
	_, known := errors.AsType[*job.Error](err)
	if err != nil && !known {
		return &job.Error{Kind: errorKind(err), Op: op, Msg: msg, Err: err}
	}
	return err
}

// connectFailure says why no connection could be made, without the text that the library adds. It
// reaches an operator at the start of a node.
type connectFailure struct{ err error }

// Unwrap returns the error of the library.
func (f *connectFailure) Unwrap() error { return f.err }

// Error implements error with the words of the system.
func (f *connectFailure) Error() string {
	var unresolved *net.DNSError
	var number syscall.Errno
	var network net.Error
	switch {
	case errors.Is(f.err, nats.ErrNoServers): // every server refused the connection
		return syscall.ECONNREFUSED.Error()
	case errors.As(f.err, &unresolved):
		return unresolved.Err
	case errors.As(f.err, &number):
		return number.Error()
	case errors.As(f.err, &network) && network.Timeout():
		return "no answer in time"
	}
	return strings.TrimPrefix(f.err.Error(), "nats: ")
}

// errorKind returns the kind of an error of the library. A refusal with 400 is Internal: the server
// understood the request and finds it wrong. Anything else that is not listed may pass, so it is
// Unavailable.
func errorKind(err error) job.Kind {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, context.Canceled):
		return job.Aborted
	case errors.Is(err, context.DeadlineExceeded):
		return job.Timeout
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return job.NotFound
	case errors.Is(err, nats.ErrMaxPayload),
		hasCode(err, jetstream.JSErrCodeStreamMessageExceedsMaximum):
		return job.TooLarge
	case errors.As(err, &api) && api.Code == 400:
		return job.Internal
	}
	return job.Unavailable
}

// isMissing reports an error that may mean that a stream or a consumer does not exist.
func isMissing(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		hasCode(err, jetstream.JSErrCodeStreamNotFound) ||
		hasCode(err, jetstream.JSErrCodeConsumerNotFound) ||
		hasCode(err, jetstream.JSErrCodeConsumerDoesNotExist) ||
		errors.Is(err, jetstream.ErrConsumerDeleted)
}

// codeNoLeader is the refusal of a cluster that has no leader at the moment.
const codeNoLeader jetstream.ErrorCode = 10008

// codeNoPeers is the refusal of a cluster that has fewer servers than a stream is to have copies.
const codeNoPeers jetstream.ErrorCode = 10005

// hasCode reports whether an error is an answer of the server with a code.
func hasCode(err error, code jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == code {
		return true
	}
	var js jetstream.JetStreamError
	return errors.As(err, &js) && js.APIError() != nil && js.APIError().ErrorCode == code
}

// withAnswerTimeout bounds an operation by answerTimeout. When the caller's own deadline or
// cancellation ends the context first, that is the error; otherwise the streams are unavailable.
func withAnswerTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout, errUnavailable)
}

// errUnavailable is the cause of a context that withAnswerTimeout has ended, and the error of a
// connection to an embedded server that is being restarted.
var errUnavailable = &job.Error{Kind: job.Unavailable, Op: "stream",
	Msg: "the streams do not answer"}

// supportsBatches reports whether a version of the server stores batches atomically (2.12).
func supportsBatches(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return false
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return major > 2 || (major == 2 && minor >= 12)
}
