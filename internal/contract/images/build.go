package images

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/outage"
)

// PictureCommand is the subcommand of the process that processes one picture: picture.Child.
const PictureCommand = "picture"

// builder makes the contract in two steps: services outside of the node are connected before the
// rest, so that a wrong setting ends the start before anything is made in the data directory.
type builder struct {
	Settings
	queue message.Queue // SQS; nil is a stream
	cdn   cdn.CDN       // purged when an image changes; nil for none
}

// Define declares Images with settings that are still to be read.
func Define() *contract.Definition {
	b := new(builder)
	return &contract.Definition{Settings: b.Group(), OpenAPI: OpenAPI,
		Errors: errorTable, UsesObjects: true,
		Streams: Streams, CheckQueue: checkQueue, Connect: b.connect, Build: b.build}
}

// checkQueue refuses all but the two queues that there are, one for each type of job.
func checkQueue(name string) error {
	if slices.Contains(jobTypes, name) {
		return nil
	}
	return fmt.Errorf("Images has no queue %q: its queues are %s", name,
		strings.Join(jobTypes, " and "))
}

// connect connects to the queue, where that is SQS and not a stream, and to the CDN. The
// connections are used as long as the process runs, so they do not end with ctx, the context of the
// start. An error names the setting that an operator has to change.
func (b *builder) connect(ctx context.Context, d *contract.Deps) error {
	if b.QueueURL != "" {
		queue, err := message.OpenSQS(context.WithoutCancel(ctx), b.QueueURL, d.Log,
			d.NewMonitor("messages", "images.queue_url", outage.EndpointOf(b.QueueURL)))
		if err != nil {
			return &contract.SettingError{Setting: "images.queue_url", Err: err}
		}
		d.OnClose(queue.Close)
		b.queue = queue
	}
	switch b.CDNType {
	case CDNHTTP:
		b.cdn = monitored(&cdn.HTTP{URL: b.CDNURL, Client: d.Client}, d,
			outage.HostsOf(b.CDNURL, ""))
	case CDNCloudFront:
		network, err := cdn.NewCloudFront(context.WithoutCancel(ctx), b.CloudFrontDistribution,
			d.Client)
		if err != nil {
			return &contract.SettingError{Setting: "images.cdn", Err: err}
		}
		b.cdn = monitored(network, d, "CloudFront "+b.CloudFrontDistribution)
	}
	return nil
}

// build makes the contract. Without an SQS queue the messages go through the streams of the node.
// Attempts that a crash has interrupted have left their files in the directory "work" of the data
// directory, which is emptied.
func (b *builder) build(d *contract.Deps) (*contract.Contract, error) {
	child, err := d.Command(PictureCommand)
	if err != nil {
		return nil, err
	}
	workDir, err := makeEmptyDir(filepath.Join(d.DataDir, "work"))
	if err != nil {
		return nil, &contract.SettingError{Setting: "data_dir", Err: err}
	}
	if b.queue == nil {
		queue := Embedded(d.Streams, d.Log)
		d.OnClose(queue.Close)
		b.queue = queue
	}
	settings := b.Settings
	settings.Workers = cmp.Or(settings.Workers, runtime.NumCPU())
	m, err := New(Config{
		Settings: settings,
		Engine:   d.Engine,
		Log:      d.Log,
		API:      d.Registry("api"),
		Worker:   d.Registry("worker"),
		Tracing:  d.Tracing,
		Now:      d.Now,
		Random:   d.Random,
		Node:     d.Name,
		Objects:  d.Objects,
		Binding:  d.Binding,

		Callbacks: d.Callbacks,

		Bucket: d.Bucket,
		Queue:  b.queue,
		CDN:    b.cdn,
		Processor: &picture.Processor{Command: child,
			Limits: picture.Limits{Pixels: int64(b.MaxPixels), Memory: picture.DefaultMemory,
				Timeout: picture.DefaultTimeout}},
		WorkDir:        workDir,
		NoLocalWorkers: d.NoLocalWorkers,
		Grace:          d.Grace,
	})
	if err != nil {
		return nil, err
	}
	return m.Offer(), nil
}

// Offer is what Images offers the process.
func (m *Images) Offer() *contract.Contract {
	workers := m.RemoteWorkers()
	return &contract.Contract{
		Name:      Name,
		Listen:    m.Listen,
		OpenAPI:   OpenAPI,
		JobTypes:  m.JobTypes(),
		Mount:     m.Mount,
		Run:       m.Run,
		Outbox:    &contract.Outbox{Deliver: m.Deliver, Await: m.Await},
		Checks:    m.Checks(),
		Workers:   &workers,
		Operators: m.operators(),
		Files:     files{m},
	}
}

// makeEmptyDir makes an empty directory in the place of whatever a crash left there.
func makeEmptyDir(path string) (string, error) {
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// monitoredCDN is a CDN whose outages are logged.
type monitoredCDN struct {
	cdn.CDN
	monitor *outage.Monitor
}

// monitored returns a CDN whose outages are logged, one line for each, with the setting images.cdn.
func monitored(network cdn.CDN, d *contract.Deps, address string) cdn.CDN {
	return &monitoredCDN{network, d.NewMonitor("cdn", "images.cdn", address)}
}

// Purge implements cdn.CDN.
func (w *monitoredCDN) Purge(ctx context.Context, reference string, keys []string) error {
	return w.monitor.Do(func() error { return w.CDN.Purge(ctx, reference, keys) })
}
