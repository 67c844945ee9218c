package stream

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// Spec is one stream as a contract wants it.
type Spec struct {
	Name string // such as JOBS_LOGS
	// such as jobs.logs.*; a message goes to the first stream that takes its subject
	Subjects []string
	MaxAge   time.Duration // messages are removed after it; zero is never
	// a durable consumer: what it has not settled stays beyond MaxAge (see Prune)
	Consumer string

	id string // see IDs
}

// Config says where the streams are and which there are.
type Config struct {
	URL    string // nats:// or tls:// addresses, comma separated; empty embeds a server
	Listen string // TCP address of the embedded server; empty: none
	Token  string // asked from clients of Listen, sent to URL; empty: none
	Dir    string // where the embedded server keeps its files
	Node   string // names the embedded server and the connection
	Specs  []Spec
	Log    *slog.Logger
	Part   *outage.Part // is told how the server answers; nil: nobody
	Now    func() time.Time
}

func (c *Config) validate() error {
	var missing []string
	for name, isMissing := range map[string]bool{"Dir": c.URL == "" && c.Dir == "",
		"Node": c.Node == "", "Specs": len(c.Specs) == 0,
		"Log": c.Log == nil, "Now": c.Now == nil} {
		if isMissing {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return errors.New("stream: the configuration lacks " + strings.Join(missing, ", "))
	}
	return nil
}

// Streams is the way to all streams. Its verbs may be called at the same time.
type Streams struct {
	config   Config
	embedded *embedded // nil with a URL
	unlock   func()
	conn     *nats.Conn
	js       jetstream.JetStream
	batches  atomic.Uint64 // numbers those of this process
}

// answerTimeout is how long one request may take before the streams count as away.
const answerTimeout = 10 * time.Second

// Open starts the embedded server, or connects, and provisions the streams. It fails where that
// cannot be done: a server that comes up without its streams would only fail later.
func Open(ctx context.Context, c Config) (*Streams, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.Specs = slices.Clone(c.Specs) // each learns its id
	s := &Streams{config: c, unlock: func() {}}
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Streams) open(ctx context.Context) (err error) {
	options := []nats.Option{nats.Name("millrace " + s.config.Node), nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
		nats.Timeout(5 * time.Second), nats.ErrorHandler(s.logAsyncError),
		nats.DisconnectErrHandler(s.disconnected),
		nats.ReconnectHandler(func(*nats.Conn) { s.config.Part.Begin()(nil) })}
	if s.config.Token != "" {
		options = append(options, nats.Token(s.config.Token))
	}
	if s.config.URL == "" {
		if err := s.startEmbedded(); err != nil {
			return err
		}
		options = append(options, nats.InProcessServer(s.embedded))
	}
	if s.conn, err = nats.Connect(s.config.URL, options...); err != nil {
		return wrapError("stream.open", "the server of the streams cannot be reached",
			&connectFailure{err})
	}
	if s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(answerTimeout),
		jetstream.WithPublishAsyncMaxPending(4096),
		jetstream.WithPublishAsyncTimeout(answerTimeout)); err != nil {
		return wrapError("stream.open", "", err)
	}
	if !supportsBatches(s.conn.ConnectedServerVersion()) {
		return &job.Error{Kind: job.Invalid, Op: "stream.open",
			Msg: "the streams need NATS 2.12 or newer, and the server is " +
				s.conn.ConnectedServerVersion()}
	}
	for i := range s.config.Specs {
		spec := &s.config.Specs[i]
		if err := s.provision(ctx, spec); err != nil {
			return err
		}
		if err := s.loadID(ctx, spec); err != nil {
			return wrapError("stream.open", "the stream "+spec.Name+" cannot be looked up", err)
		}
	}
	return nil
}

// logAsyncError logs what has no caller to tell, such as a watcher that reads too slowly. What a
// connection that was lost or is made again brings with it is told by the part.
func (s *Streams) logAsyncError(conn *nats.Conn, _ *nats.Subscription, err error) {
	if conn.IsConnected() && !errors.Is(err, nats.ErrNoHeartbeat) {
		s.config.Log.Warn("trouble with the connection to the streams", "error_message",
			err.Error())
	}
}

// disconnected tells of a connection that was lost, also where nobody asks for anything.
func (s *Streams) disconnected(conn *nats.Conn, err error) {
	if !conn.IsClosed() && s.config.URL != "" {
		s.reportResult(s.config.Part.Begin(), "stream.connection", err)
	}
}

// reportResult tells the part how a call ended, and gives the error its kind.
func (s *Streams) reportResult(report func(error), op string, err error) error {
	err = wrapError(op, "", err)
	report(err)
	return err
}

// Ping tells whether the streams answer.
func (s *Streams) Ping(ctx context.Context) error {
	report := s.config.Part.Begin()
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	_, err := s.js.AccountInfo(ctx)
	return s.reportResult(report, "stream.ping", s.contextCause(ctx, err))
}

// retryUntilAnswered asks until there is an answer: while a cluster elects a leader, a question is
// turned away or lost.
func (s *Streams) retryUntilAnswered(ctx context.Context,
	request func(context.Context) error) error {
	return s.retryUntilAnsweredWithin(ctx, time.Second, request)
}

// firstAnswerTimeout is how long what is large is waited for before it is asked for, or published,
// again: a leader that dies takes the question or its answer with it.
const firstAnswerTimeout = 4 * time.Second

// retryUntilAnsweredWithin is insist that waits so long for the first answer.
func (s *Streams) retryUntilAnsweredWithin(ctx context.Context, wait time.Duration,
	request func(context.Context) error) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, wait)
		err := request(attempt)
		cancel()
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case hasCode(err, codeNoLeader):
			clock.Sleep(ctx, minPause)
		case errors.Is(err, context.DeadlineExceeded):
			wait *= 2 // the answer may only be slow
		default:
			return err
		}
	}
}

// Close ends the connection, and the embedded server after what it has under way.
func (s *Streams) Close() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.embedded != nil {
		s.embedded.shutdown()
	}
	s.unlock()
}

// specForSubject gives the stream that takes a subject.
func (s *Streams) specForSubject(subject string) *Spec {
	for i := range s.config.Specs {
		for _, pattern := range s.config.Specs[i].Subjects {
			if subjectMatches(pattern, subject) {
				return &s.config.Specs[i]
			}
		}
	}
	return nil
}

// specByName gives the stream with a name.
func (s *Streams) specByName(name string) *Spec {
	for i := range s.config.Specs {
		if s.config.Specs[i].Name == name {
			return &s.config.Specs[i]
		}
	}
	return nil
}

// subjectMatches compares token by token; * stands for one, > for the rest.
func subjectMatches(pattern, subject string) bool {
	for {
		want, rest, more := strings.Cut(pattern, ".")
		got, remaining, next := strings.Cut(subject, ".")
		switch {
		case want == ">" && got != "":
			return true
		case got == "" || (want != "*" && want != got) || more != next:
			return false
		case !more:
			return true
		}
		pattern, subject = rest, remaining
	}
}
