package stream

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
)

// embed starts the server in the process. SyncAlways: what it acknowledges is on the disk.
func (s *Streams) embed() error {
	c := &s.config
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return &job.Error{Kind: job.ReadOnly, Op: "stream.open", Msg: "the directory of the streams is not writable", Err: err}
	}
	unlock, err := disk.Lock(filepath.Join(c.Dir, "lock"))
	if err != nil {
		return err
	}
	s.unlock = unlock
	options := &server.Options{ServerName: c.Node, DontListen: c.Listen == "", Authorization: c.Token, JetStream: true, StoreDir: c.Dir,
		SyncAlways: true, NoSigs: true, NoLog: true, DisableJetStreamBanner: true}
	if c.Listen != "" {
		host, port, err := net.SplitHostPort(c.Listen)
		if options.Port, _ = strconv.Atoi(port); err != nil {
			return &job.Error{Kind: job.Invalid, Op: "stream.open", Msg: "stream.listen is no address", Err: err}
		}
		if options.Host = host; options.Port == 0 {
			options.Port = server.RANDOM_PORT
		}
	}
	embedded, err := server.NewServer(options)
	if err != nil {
		return &job.Error{Kind: job.Internal, Op: "stream.open", Msg: "the embedded server of the streams cannot be made", Err: err}
	}
	l := &logger{Logger: c.Log}
	embedded.SetLoggerV2(l, false, false, false)
	embedded.Start()
	s.embedded = embedded
	for range 600 { // a minute, but not after it has said why it cannot
		if embedded.ReadyForConnections(100 * time.Millisecond) {
			return nil
		}
		if l.why() != "" {
			break
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: "stream.open", Msg: "the embedded server of the streams did not start" + l.why()}
}

// Address is where the embedded server listens; empty when it does not.
func (s *Streams) Address() string {
	if s.embedded == nil || s.config.Listen == "" {
		return ""
	}
	return s.embedded.Addr().String()
}

// logger writes what the embedded server has to say. Its notices are for those who run one by hand.
type logger struct {
	*slog.Logger
	last atomic.Pointer[string] // why it does not start
}

func (l *logger) why() string {
	if last := l.last.Load(); last != nil {
		return ": " + *last
	}
	return ""
}

func (l *logger) Errorf(format string, v ...any) {
	l.Error("the server of the streams", "error_message", fmt.Sprintf(format, v...))
}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.last.Store(&text)
	l.Errorf("%s", text)
}

func (l *logger) Warnf(format string, v ...any) {
	l.Warn("the server of the streams", "error_message", fmt.Sprintf(format, v...))
}

func (l *logger) Noticef(format string, v ...any) { l.Debugf(format, v...) }

func (l *logger) Debugf(format string, v ...any) { l.Debug(fmt.Sprintf(format, v...)) }

func (l *logger) Tracef(string, ...any) {}
