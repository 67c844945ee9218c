package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/server"
)

func imagesRoom(p *parts, log *slog.Logger) (server.Place, error) {
	s, grace := &p.settings.Images, p.settings.ShutdownGrace
	child, err := pictureChild()
	if err != nil {
		return server.Place{}, err
	}
	workDir, err := freshDir(filepath.Join(p.settings.DataDir, "work"))
	if err != nil {
		return server.Place{}, unable("data_dir: %v", err)
	}
	if p.messages, err = imageMessages(p, log); err != nil {
		return server.Place{}, unable("images.queue_url: %v", err)
	}
	network, err := imageCDN(p)
	if err != nil {
		return server.Place{}, unable("images.cdn: %v", err)
	}
	workers := s.Workers
	if workers == 0 {
		workers = runtime.NumCPU()
	}
	r, err := images.New(images.Config{
		Log: log, API: p.registries.For(images.Name, "api"), Worker: p.registries.For(images.Name, "worker"), Now: p.process.now, Random: random,
		Token: s.Token, Tracing: p.tracing, Node: p.node, Objects: p.objects, Bucket: p.settings.Objects.Bucket, Queue: p.messages, CDN: network,
		Processor: &picture.Processor{Command: child, Limits: picture.Limits{Pixels: int64(s.MaxPixels), Memory: picture.DefaultMemory,
			Time: picture.DefaultTime}},
		WorkDir: workDir, LockTimeout: s.LockTimeout, MaxAttempts: s.MaxAttempts, BackoffBase: s.BackoffBase, BackoffMax: s.BackoffMax,
		Sizes: s.Sizes, MaxUpload: s.MaxUpload, MaxPixels: int64(s.MaxPixels), Off: p.noWorkers, Workers: workers, Grace: grace - grace/8,
	})
	if err != nil {
		return server.Place{}, err
	}
	p.outside = append(p.outside, r.Outside())
	return server.Place{Room: r, Listen: s.Listen, OpenAPI: images.OpenAPI}, nil
}

// freshDir makes an empty directory: what a crash left in it is of no use.
func freshDir(path string) (string, error) {
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// imageMessages is the queue that proposes image jobs.
func imageMessages(p *parts, log *slog.Logger) (message.Queue, error) {
	if at := p.settings.Images.QueueURL; at != "" {
		return message.OpenSQS(context.Background(), at, log)
	}
	return images.Embedded(p.streams, log), nil
}

// imageCDN is what is told of images that have changed; nil is nobody.
func imageCDN(p *parts) (cdn.CDN, error) {
	switch s := &p.settings.Images; s.CDN {
	case config.CDNHTTP:
		return &cdn.HTTP{URL: s.CDNURL, Client: p.egress}, nil
	case config.CDNCloudFront:
		return cdn.NewCloudFront(context.Background(), s.CloudFrontDistribution, p.egress)
	}
	return nil, nil
}
