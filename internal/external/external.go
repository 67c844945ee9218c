package external

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/webhook"
)

// Call is one call of a handler.
type Call struct {
	ID   string // the same in each repetition, also where Names differ
	Body []byte // JSON
	// Names say what the call is about: with Job-Id a service gets the header Millrace-Job-Id, a
	// command the variable MILLRACE_JOB_ID.
	Names []Name
	Trace string // the carrier of the job's trace; services get it
}

// Name is one name of a call with its value.
type Name struct{ Name, Value string }

// Answer is what a handler has said.
type Answer struct {
	Body []byte
	Log  string // the end of a command's standard error, also of one that failed
}

// Handler is a handler that can be called, by several goroutines at once.
type Handler interface {
	// Call makes one call. The error is a Failure, or the cause of ctx if that has ended.
	Call(ctx context.Context, c *Call) (Answer, error)
}

// Failure says why a call has no answer. Type and Message are for clients: they name no address.
type Failure struct {
	Type      string // one of the types below; "" for a command that could not be started
	Message   string
	Retryable bool // another call may succeed
	// Missing says that the command cannot be run on this machine, which is no fault of the job.
	Missing bool
}

// Error implements error.
func (f *Failure) Error() string { return f.Message }

// Types of failures.
const (
	typeExit       = "exit"       // the command ended with another code than 0
	typeOutput     = "output"     // the command wrote more than its limit
	typeStatus     = "http_"      // the answer had this status, as in http_404
	typeConnection = "connection" // there was no answer
	typeRefused    = "refused"    // the guard of outbound requests refused the address
	typeTimeout    = "timeout"    // the command, or the answer, took longer than the limit
)

// Factory makes the handlers of a process.
type Factory struct {
	Child   []string // how the process starts child.Exec
	Environ []string // that every command gets
	Dir     string   // of the directories of commands
	Client  webhook.Doer
	Now     func() time.Time // in signatures
	// MaxProcesses bounds the processes of one handler at a time; 0 is no bound.
	MaxProcesses int
}

// New makes the handler of a queue or job type. The command must be there; what earlier processes
// have left in its directory is removed.
func (f *Factory) New(name, kind string, s *Settings) (Handler, error) {
	if err := f.validate(kind, s); err != nil {
		return nil, err
	}
	if kind == HTTP {
		return &service{Settings: *s, client: f.Client, now: f.Now}, nil
	}
	program, err := findProgram(s.Command[0], s.Directory)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(f.Dir, name))
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &runner{Settings: *s, factory: *f, program: program, dir: dir}
	for name, value := range s.Environment {
		c.environ = append(c.environ, name+"="+value.Reveal())
	}
	if f.MaxProcesses > 0 {
		c.slots = make(chan struct{}, f.MaxProcesses)
	}
	return c, nil
}

// validate returns what a handler lacks that those of a configuration always have.
func (f *Factory) validate(kind string, s *Settings) error {
	switch {
	case s.Timeout <= 0 || s.MaxOutput <= 0:
		return fmt.Errorf("the handler %s needs Timeout and MaxOutput", kind)
	case kind == HTTP && (s.URL == "" || f.Client == nil):
		return fmt.Errorf("the handler %s needs URL and Client", kind)
	case kind == Exec && (len(s.Command) == 0 || len(f.Child) == 0 || f.Dir == ""):
		return fmt.Errorf("the handler %s needs Command, Child and Dir", kind)
	}
	return nil
}

// CleanText makes a text of any bytes one that every store keeps, of at most maxMessage bytes.
func CleanText(text string) string {
	text = text[:min(len(text), maxMessage)]
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// maxMessage bounds the message of a failure, in bytes.
const maxMessage = 1 << 10
