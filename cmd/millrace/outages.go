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
// streams, a queue, a CDN, the receiver of traces. Each has an [outage.Part], which logs one line
// when the part stops answering and one when it answers again, however many requests failed
// meanwhile. The line names the setting and the address, so that an operator knows where to look.

// newPart makes the part of one dependency, with the name, setting and address that its lines have.
// Contracts make theirs through it as well (contract.Node.Part).
func (d *deps) newPart(name, setting, address string) *outage.Part {
	return d.newPartOf(outage.Endpoint{Name: name, Setting: setting, Address: address})
}

// newPartOf makes the part of an endpoint. Its times are of the monotonic clock: an outage has its
// true length although the clock was set meanwhile.
func (d *deps) newPartOf(endpoint outage.Endpoint) *outage.Part {
	part := outage.NewPart(d.log, d.process.Elapsed, endpoint)
	d.parts = append(d.parts, part)
	return part
}

// storeQuiet is how long the database must go without a failure before an outage has ended. While
// its disk is full, reads succeed between the writes that fail.
const storeQuiet = 5 * time.Second

// storePart is the part of the database: the file of SQLite, or the hosts of a PostgreSQL. Its
// address has no credentials.
func (d *deps) storePart() *outage.Part {
	endpoint := databaseOf(d.settings).endpoint(d.settings)
	endpoint.Name, endpoint.Quiet = "store", storeQuiet
	return d.newPartOf(endpoint)
}

// objectsRefusalQuiet is how long the object storage must go without a failure before an outage
// that was a refusal has ended. It is longer than the time between two readiness checks of most
// monitors. These ask each bucket, while the objects of the work may lie in folders that can still
// be written: a shorter time would log an end and a new outage at every check.
const objectsRefusalQuiet = time.Minute

// objectsPart is the part of the object storage, elsewhere or in the data directory.
func (d *deps) objectsPart() *outage.Part {
	endpoint := outage.Endpoint{Name: "objects", Setting: "data_dir",
		Address: d.objectsDir(), RefusalQuiet: objectsRefusalQuiet}
	if at := d.settings.Objects.URL; at != "" {
		endpoint.Setting, endpoint.Address = "objects.url", outage.EndpointOf(at)
	}
	return d.newPartOf(endpoint)
}

// streamsPart is the part of the streams: a NATS cluster, or the embedded server.
func (d *deps) streamsPart() *outage.Part {
	if at := d.settings.Stream.URL; at != "" {
		return d.newPart("streams", "stream.url", outage.HostsOf(at, "4222"))
	}
	return d.newPart("streams", "data_dir", d.streamsDir())
}

// tracesPart is the part of the collector that receives traces.
func (d *deps) tracesPart() *outage.Part {
	return d.newPart("traces", "telemetry.otlp_endpoint",
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
