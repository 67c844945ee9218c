package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/config"
)

// The exit codes of all commands; see ExitHelp.
const (
	// ExitOK means that the command has done its work.
	ExitOK = 0
	// ExitFailed means that the work failed.
	ExitFailed = 1
	// ExitUsage means that the command line or a setting is wrong.
	ExitUsage = 2
	// ExitUnable means that something which this machine must provide is missing.
	ExitUnable = 3
	// ExitServer means that the server cannot be reached.
	ExitServer = 4
	// ExitUnauthorized means that the server refuses the token, or what it may do.
	ExitUnauthorized = 5
	// ExitInterrupted means that a signal stopped the command before its work was done.
	ExitInterrupted = 130
)

// ExitHelp describes the exit codes for the help of the commands. They are a promise to scripts.
const ExitHelp = `Exit codes:
  0    done; also a server or worker that was asked to stop and did
  1    the work failed, or the accounts do not balance; not for jobs that failed in a worker
  2    the command line or a setting is wrong; nothing was started
  3    something this machine must provide is missing: an address or data directory is in use, the store is unavailable
  4    the server cannot be reached
  5    the server refuses the token
  130  stopped by a signal before the work was done`

// ExitError is an error with the exit code of the process.
type ExitError struct {
	code int
	err  error
}

// Error returns the text of the wrapped error. The code is not part of it.
func (f *ExitError) Error() string { return f.err.Error() }

// Unwrap returns the wrapped error.
func (f *ExitError) Unwrap() error { return f.err }

// WithCode gives an error its exit code; nil stays nil.
func WithCode(code int, err error) error {
	if err != nil {
		return &ExitError{code, err}
	}
	return nil
}

// UsageError is an error of the command line or a setting.
func UsageError(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// orUsage makes an error without an exit code one of the command line.
func orUsage(err error) error {
	var coded *ExitError
	if errors.As(err, &coded) {
		return err
	}
	return WithCode(ExitUsage, err)
}

// UnableError is the error of something that the command needs on this machine and cannot have.
func UnableError(format string, args ...any) error {
	return &ExitError{ExitUnable, fmt.Errorf(format, args...)}
}

// FailedError is the error of work that failed.
func FailedError(format string, args ...any) error {
	return &ExitError{ExitFailed, fmt.Errorf(format, args...)}
}

// ErrInterrupted is the error of work that a signal interrupted.
var ErrInterrupted = &ExitError{ExitInterrupted, errors.New("interrupted")}

// ErrLogged is an error that is in the log already: main does not write it again.
var ErrLogged = errors.New("logged")

// ExitCode is the exit code of the process. An error without a code came from cobra: the command
// line is wrong.
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

// ErrorText is the text that main writes about an error; every line names the program.
func ErrorText(err error) string {
	isNew := err != nil && !errors.Is(err, ErrLogged)
	if !isNew {
		return ""
	}
	var settings *config.Error
	if errors.As(err, &settings) {
		return settings.Error() // a line for each problem
	}
	// Errors of the SDK begin with its name as well.
	return strings.ReplaceAll("millrace: "+err.Error(), ": millrace: ", ": ")
}

// ErrorHint returns a line that may help with the error of a command; empty for none. An error
// without a code is one of the command line, for which there is the help of the command. Where no
// server was named and the default one does not answer, there may be one that a login has kept.
func ErrorHint(p Process, c *cobra.Command, err error) string {
	var coded *ExitError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrLogged):
		return ""
	case !errors.As(err, &coded):
		return "Run '" + c.CommandPath() + " --help' for usage."
	case coded.code != ExitServer || p.Env(EnvServer) != "":
		return ""
	}
	profile, server := c.Flags().Lookup("profile"), c.Flags().Lookup("server")
	if profile == nil || server == nil || profile.Changed || server.Changed {
		return ""
	}
	name, kept := firstProfile()
	isUsed := name == DefaultProfile && c.Flags().Lookup("actor") != nil
	if name == "" || isUsed {
		return ""
	}
	return fmt.Sprintf("millrace: --profile %s asks %s, as 'millrace login' has kept it", name,
		kept.Server)
}

// RemoteError gives the error of a call to a server its exit code.
func RemoteError(ctx context.Context, err error) error {
	return remoteError(ctx, err, "--server or "+EnvServer)
}

// remoteError is RemoteError for a server whose address was written where source says.
func remoteError(ctx context.Context, err error, source string) error {
	var e *client.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ErrInterrupted
	case errors.Is(err, client.ErrUnauthorized):
		return WithCode(ExitUnauthorized,
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
			"(%s, with https://): %w", source, err))
	case errors.Is(err, http.ErrSchemeMismatch):
		return WithCode(ExitServer, fmt.Errorf("the server cannot be reached with TLS "+
			"(%s, with http://): %w", source, err))
	case errors.Is(err, client.ErrNotMillrace):
		return WithCode(ExitServer, fmt.Errorf("%w (%s)", err, source))
	case errors.As(err, &e) && e.Status == 0 && e.Retryable():
		return WithCode(ExitServer, unreachable(err, source))
	default:
		return WithCode(ExitFailed, err)
	}
}

// unsent is the error of a request that the SDK refused to send; its text leaves the operation out.
type unsent struct{ err error }

// Unwrap returns the error of the SDK.
func (u *unsent) Unwrap() error { return u.err }

// Error returns why the request is invalid.
func (u *unsent) Error() string {
	text := u.err.Error()
	if _, reason, ok := strings.Cut(text, client.ErrInvalid.Error()+": "); ok {
		return reason
	}
	return text
}

// plainToTLS is the answer of a Go server that expects TLS to a request without it.
const plainToTLS = "Client sent an HTTP request to an HTTPS server."

// UnreachableError is the error of a server that does not answer.
func UnreachableError(err error) error { return unreachable(err, "--server or "+EnvServer) }

// unreachable is UnreachableError for a server whose address was written where source says.
func unreachable(err error, source string) error {
	return fmt.Errorf("the server cannot be reached (%s): %w", source, err)
}

// CertificateRejected reports whether a call failed because the server's certificate is not
// trusted. A retry would fail in the same way.
func CertificateRejected(err error) bool {
	var refused *tls.CertificateVerificationError
	return errors.As(err, &refused)
}
