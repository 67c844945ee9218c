package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/config"
)

// How a command ends.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnable      = 3
	ExitServer      = 4
	ExitInterrupted = 130
)

const ExitHelp = `Exit codes:
  0    done; also a server or worker that was asked to stop and did
  1    the work failed, or the accounts do not balance; not for jobs that failed in a worker
  2    the command line or a setting is wrong; nothing was started
  3    what is needed here is not to be had: an address or data directory in use, a store that is away
  4    the server cannot be reached, or refuses the token
  130  stopped by a signal before the work was done`

// ExitError is an error that says how the process ends.
type ExitError struct {
	code int
	err  error
}

func (f *ExitError) Error() string { return f.err.Error() }
func (f *ExitError) Unwrap() error { return f.err }

func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{code, err}
}

func UsageError(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

func UnableError(format string, args ...any) error {
	return &ExitError{ExitUnable, fmt.Errorf(format, args...)}
}

func FailedError(format string, args ...any) error {
	return &ExitError{ExitFailed, fmt.Errorf(format, args...)}
}

// ErrInterrupted is the end of work that a signal cut short.
var ErrInterrupted = &ExitError{ExitInterrupted, errors.New("interrupted")}

// ErrLogged is a failure that the log has told of.
var ErrLogged = errors.New("logged")

// ExitCode tells how the process ends. What carries no code came from cobra: the command line is
// wrong.
func ExitCode(err error) int {
	var f *ExitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &f):
		return f.code
	default:
		return ExitUsage
	}
}

// ErrorText is what is said about an error; every line names the program.
func ErrorText(err error) string {
	told := err != nil && !errors.Is(err, ErrLogged)
	if !told {
		return ""
	}
	var settings *config.Error
	if errors.As(err, &settings) {
		return settings.Error() // a line for each problem
	}
	// the SDK names itself too
	text := strings.ReplaceAll("millrace: "+err.Error(), ": millrace: ", ": ")
	var f *ExitError
	if !errors.As(err, &f) {
		text += "\nRun 'millrace --help' for usage."
	}
	return text
}

// RemoteError gives the failure of a call its code.
func RemoteError(ctx context.Context, err error) error {
	var e *client.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ErrInterrupted
	case errors.Is(err, client.ErrUnauthorized):
		return WithCode(ExitServer,
			fmt.Errorf("the server refuses the token (--token or MILLRACE_TOKEN): %w", err))
	case errors.As(err, &e) && e.Status == 0 &&
		(errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrCycle)):
		return WithCode(ExitUsage, &unsent{err}) // nothing was sent
	case CertificateRejected(err):
		return WithCode(ExitServer, fmt.Errorf(
			"the server's certificate is not trusted (--cacert or %s): %w", EnvCACert, err))
	case errors.As(err, &e) && e.Status == http.StatusBadRequest &&
		strings.HasSuffix(e.Message, plainToTLS):
		return WithCode(ExitServer, fmt.Errorf("the server cannot be reached without TLS "+
			"(--server or %s, with https://): %w", EnvServer, err))
	case errors.As(err, &e) && e.Status == 0 && e.Retryable():
		return WithCode(ExitServer, UnreachableError(err))
	default:
		return WithCode(ExitFailed, err)
	}
}

// unsent is a request that was refused before it was sent, told without what it would have been.
type unsent struct{ err error }

func (u *unsent) Unwrap() error { return u.err }

func (u *unsent) Error() string {
	text := u.err.Error()
	if _, told, ok := strings.Cut(text, client.ErrInvalid.Error()+": "); ok {
		return told
	}
	return text
}

// plainToTLS is what a server written in Go answers to a request without TLS where it expects
// one with it.
const plainToTLS = "Client sent an HTTP request to an HTTPS server."

func UnreachableError(err error) error {
	return fmt.Errorf("the server cannot be reached (--server or %s): %w", EnvServer, err)
}

// CertificateRejected reports whether a call failed because the server's certificate is not
// trusted: another try would meet the same one.
func CertificateRejected(err error) bool {
	var refused *tls.CertificateVerificationError
	return errors.As(err, &refused)
}
