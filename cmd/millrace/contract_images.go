package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/telemetry"
)

// newImagesContract builds Images. Its work directory is emptied at each start: a killed process
// leaves half-written variants there. Without a queue elsewhere its messages go over the streams of
// the node.
func newImagesContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	s := p.settings.Images
	child, err := pictureChild()
	if err != nil {
		return server.ServedContract{}, err
	}
	workDir, err := makeEmptyDir(filepath.Join(p.settings.DataDir, "work"))
	if err != nil {
		return server.ServedContract{}, cli.UnableError("data_dir: %v", err)
	}
	if p.messages == nil {
		p.messages = images.Embedded(p.streams, log)
	}
	if s.Workers == 0 {
		s.Workers = runtime.NumCPU()
	}
	r, err := images.New(images.Config{
		Settings: s,
		Log:      log,
		API:      p.registries.For(images.Name, "api"),
		Worker:   p.registries.For(images.Name, "worker"),
		Tracing:  p.tracing,
		Now:      p.process.Now,
		Random:   randomBytes,
		Node:     p.node,
		Objects:  p.objects,
		Shared:   p.binding,
		Bucket:   p.settings.Objects.Bucket,
		Queue:    p.messages,
		CDN:      p.cdn,

		Processor: &picture.Processor{
			Command: child,
			Limits: picture.Limits{Pixels: int64(s.MaxPixels), Memory: picture.DefaultMemory,
				Timeout: picture.DefaultTimeout},
		},
		WorkDir:        workDir,
		NoLocalWorkers: p.noWorkers,
		Grace:          p.handlerGrace(),
	})
	if err != nil {
		return server.ServedContract{}, err
	}
	p.remoteContracts = append(p.remoteContracts, r.RemoteWorkers())
	return server.ServedContract{Contract: r, Listen: s.Listen, OpenAPI: images.OpenAPI}, nil
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

// connectImages connects to what Images uses elsewhere: its queue, where that is SQS and no stream,
// and the CDN.
func (d *deps) connectImages(ctx context.Context) error {
	s := &d.settings.Images
	if !d.settings.Serves(images.Name) {
		return nil
	}
	if s.QueueURL != "" {
		queue, err := message.OpenSQS(context.WithoutCancel(ctx), s.QueueURL,
			d.log.With(telemetry.Contract, images.Name), d.queuePart())
		if err != nil {
			return cli.UnableError("images.queue_url: %s", plainError(err))
		}
		d.messages = queue
	}
	network, err := imageCDN(ctx, d)
	if err != nil {
		return cli.UnableError("images.cdn: %s", plainError(err))
	}
	d.cdn = network
	return nil
}

// imageCDN is the CDN that is purged when an image changes; nil where the settings name none.
func imageCDN(ctx context.Context, p *deps) (cdn.CDN, error) {
	switch s := &p.settings.Images; s.CDNType {
	case images.CDNHTTP:
		return p.monitored(&cdn.HTTP{URL: s.CDNURL, Client: p.egress}), nil
	case images.CDNCloudFront:
		network, err := cdn.NewCloudFront(context.WithoutCancel(ctx), s.CloudFrontDistribution,
			p.egress)
		return p.monitored(network), err
	}
	return nil, nil
}

// pictureName is the subcommand that processes one picture: the server starts it for each.
const pictureName = "picture"

// pictureChild is how a server starts the child that processes a picture: this very binary, on
// Linux even when another has been put in its place meanwhile, as the two must speak the same.
func pictureChild() ([]string, error) {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", pictureName}, nil
	}
	self, err := os.Executable()
	return []string{self, pictureName}, err
}

// pictureCommand is `millrace picture`, the hidden command of the child that processes one picture.
// Its arguments and its standard files are a protocol of package picture, which no user sees.
func pictureCommand(p cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:                pictureName,
		Short:              "process one picture (used by the server)",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := picture.Child(p.Stdin, p.Stdout, args); code != cli.ExitOK {
				return cli.WithCode(code, errors.New("no picture was processed"))
			}
			return nil
		},
	}
}
