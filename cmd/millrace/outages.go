package main

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// A node depends on parts that may be unavailable while it runs: the store, the object storage, the
// streams, a queue, a CDN, the receiver of traces. Each has an [outage.Monitor], which logs one
// line when the part stops answering and one when it answers again, however many requests failed
// meanwhile. The line names the setting and the address, so that an operator knows where to look.

// newMonitor makes the monitor of one part, with the name, setting and address that its lines have.
// Contracts make theirs through it as well (contract.Deps.NewMonitor).
func (d *deps) newMonitor(name, setting, address string) *outage.Monitor {
	return d.newMonitorOf(outage.Endpoint{Name: name, Setting: setting, Address: address})
}

// newMonitorOf makes the monitor of an endpoint. Its times are of the monotonic clock: an outage
// has its true length although the clock was set meanwhile.
func (d *deps) newMonitorOf(endpoint outage.Endpoint) *outage.Monitor {
	monitor := outage.NewMonitor(d.log, d.process.Elapsed, endpoint)
	d.monitors = append(d.monitors, monitor)
	return monitor
}

// storeQuiet is how long the database must go without a failure before an outage has ended. While
// its disk is full, reads succeed between the writes that fail.
const storeQuiet = 5 * time.Second

// storeMonitor monitors the database: the file of SQLite, or the hosts of a PostgreSQL. Its
// address has no credentials.
func (d *deps) storeMonitor() *outage.Monitor {
	endpoint := databaseOf(d.settings).endpoint(d.settings)
	endpoint.Name, endpoint.Quiet = "store", storeQuiet
	return d.newMonitorOf(endpoint)
}

// objectsRefusalQuiet is how long the object storage must go without a failure before an outage
// that was a refusal has ended. It is longer than the time between two readiness checks of most
// monitors. These ask each bucket, while the objects of the work may lie in folders that can still
// be written: a shorter time would log an end and a new outage at every check.
const objectsRefusalQuiet = time.Minute

// objectsMonitor monitors the object storage, elsewhere or in the data directory.
func (d *deps) objectsMonitor() *outage.Monitor {
	endpoint := outage.Endpoint{Name: "objects", Setting: "data_dir",
		Address: d.objectsDir(), RefusalQuiet: objectsRefusalQuiet}
	if at := d.settings.Objects.URL; at != "" {
		endpoint.Setting, endpoint.Address = "objects.url", outage.EndpointOf(at)
	}
	return d.newMonitorOf(endpoint)
}

// streamsMonitor monitors the streams: a NATS cluster, or the embedded server.
func (d *deps) streamsMonitor() *outage.Monitor {
	if at := d.settings.Stream.URL; at != "" {
		return d.newMonitor("streams", "stream.url", outage.HostsOf(at, "4222"))
	}
	return d.newMonitor("streams", "data_dir", d.streamsDir())
}

// tracesMonitor monitors the collector that receives traces.
func (d *deps) tracesMonitor() *outage.Monitor {
	return d.newMonitor("traces", "telemetry.otlp_endpoint",
		outage.HostsOf(d.settings.Telemetry.OTLPEndpoint, ""))
}

// captureLibraryLogs redirects what libraries write through the default loggers of Go and
// OpenTelemetry, or to standard error, into the log: a log of JSON then has no line that is not
// JSON. Go still writes the stacks of a crash to standard error itself.
//
// end puts standard error back and returns when every captured line is logged; the loggers stay as
// they are. Standard error is captured only where the log goes there: in tests, which run commands
// concurrently in one process, it stays as it is.
func captureLibraryLogs(p cli.Process, log *slog.Logger) (end func()) {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(log) // log.Printf writes there as well
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces failed", telemetry.ErrorMessage, err)
	}))
	if p.Stderr != io.Writer(os.Stderr) {
		return func() {}
	}
	real := os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		log.Debug("what libraries write to standard error is not captured", telemetry.ErrorMessage,
			err)
		return func() {}
	}
	os.Stderr = write
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			log.Warn("a library wrote to standard error", "line", lines.Text())
		}
		_, _ = io.Copy(io.Discard, read) // a line that is too long must not block its writer
	}()
	return func() {
		os.Stderr = real
		write.Close()
		<-copied
	}
}
