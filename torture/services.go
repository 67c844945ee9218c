package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// services are what several nodes share, besides their database, for FetchBox and Images: a NATS
// server and an S3 server. The nodes reach both through something that can be disturbed.
type services struct {
	nats     *natsServer
	toNATS   *proxy
	s3       *s3Server
	objects  string   // directory of the objects
	settings []string // of each node
}

// The modes in which services fail, besides those that failovers have too.
const (
	modeErrors    = "errors"    // S3 answers 500 or 503, also to what it has carried out
	modeSlow      = "slow"      // each request to S3 waits for up to two seconds
	modeReset     = "reset"     // all connections to NATS are reset, again and again
	modeDeleted   = "deleted"   // all streams are deleted
	modeConsumers = "consumers" // all consumers of the streams are deleted
	modeEmptied   = "emptied"   // the NATS server is killed, and has nothing when it comes back
	modeStarted   = "started"   // all streams are deleted, and a node is killed and started
)

// serviceModes are the modes of each kind of fault of services.
var serviceModes = map[string][]string{
	faultS3:           {modeKilled, modeFrozen, modeErrors, modeSlow},
	faultStreams:      {modeKilled, modeFrozen, modeReset},
	faultStreamsWiped: {modeDeleted, modeConsumers, modeEmptied, modeStarted},
	faultMessages:     {modeDoubled, modeStolen},
}

// isOfServices reports whether a kind of fault harms what several nodes share.
func isOfServices(kind string) bool { return len(serviceModes[kind]) > 0 }

// startServices starts what the nodes of a plan share; nil for nothing.
func startServices(ctx context.Context, p *plan) (_ *services, err error) {
	if p.S3 == "" {
		return nil, nil
	}
	root := filepath.Join(p.Dir, "s3")
	s := &services{objects: filepath.Join(root, sharedBucket)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.MkdirAll(s.objects, 0o700); err != nil {
		return nil, err
	}
	s.nats = &natsServer{dir: filepath.Join(p.Dir, "nats")}
	if s.nats.address, err = freeAddress(); err != nil {
		return nil, err
	}
	if err := s.nats.start(ctx); err != nil {
		return nil, err
	}
	if s.toNATS, err = newProxy(s.nats.address); err != nil {
		return nil, err
	}
	if s.s3, err = newS3(ctx, p, root); err != nil {
		return nil, err
	}
	s.settings = []string{"stream.url=nats://" + s.toNATS.address(),
		"objects.bucket=" + sharedBucket, "objects.url=s3://?region=us-east-1&use_path_style=true" +
			"&endpoint=http://" + s.s3.gateway.address}
	return s, nil
}

// close ends both servers, if there are any.
func (s *services) close() {
	if s == nil {
		return
	}
	if s.s3 != nil {
		s.s3.close()
	}
	if s.toNATS != nil {
		_ = s.toNATS.Close()
	}
	if s.nats != nil {
		s.nats.kill()
	}
}

// disturbServices does a fault of what the nodes share. It returns when each of them is ready
// again.
func (r *run) disturbServices(ctx context.Context, f fault) error {
	disturb := r.services.disturbStreams
	switch f.Kind {
	case faultS3:
		disturb = r.services.disturbS3
	case faultStreamsWiped:
		disturb = r.services.wipeStreams
	case faultMessages:
		disturb = r.services.disturbMessages
	}
	if err := disturb(ctx, f); err != nil {
		return err
	}
	ended := time.Now()
	if f.Kind == faultStreamsWiped {
		r.wiped = r.ledger.now()
	}
	if f.Mode == modeStarted { // it finds no streams that the others have not made again
		r.nodes[f.Node].kill()
		if err := r.restart(ctx, r.nodes[f.Node]); err != nil {
			return err
		}
	}
	if err := r.awaitNodes(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	r.log("        all nodes ready %s after the end", time.Since(ended).Round(time.Millisecond))
	return nil
}

// disturbS3 has the S3 server fail for the length of a fault.
func (s *services) disturbS3(ctx context.Context, f fault) error {
	switch f.Mode {
	case modeKilled:
		s.s3.kill()
		sleep(ctx, f.Length)
		return s.s3.start(context.WithoutCancel(ctx))
	case modeFrozen:
		return freezeFor(ctx, s.s3.cmd.Process.Pid, f.Length)
	case modeErrors, modeSlow:
		s.s3.gateway.disturb(f.Mode)
		sleep(ctx, f.Length)
		s.s3.gateway.disturb("")
		return nil
	}
	return fmt.Errorf("there is no mode %q to disturb S3", f.Mode)
}

// freezeFor stops a process for a time.
func freezeFor(ctx context.Context, pid int, length time.Duration) error {
	if err := freezeProcess(pid); err != nil {
		return err
	}
	sleep(ctx, length)
	return syscall.Kill(pid, syscall.SIGCONT)
}

// disturbStreams has the NATS server fail for the length of a fault. What it has acknowledged is
// there afterwards.
func (s *services) disturbStreams(ctx context.Context, f fault) error {
	switch f.Mode {
	case modeKilled:
		s.nats.kill()
		sleep(ctx, f.Length)
		return s.nats.start(context.WithoutCancel(ctx))
	case modeFrozen:
		return freezeFor(ctx, s.nats.cmd.Process.Pid, f.Length)
	case modeReset:
		for end := time.Now().Add(f.Length); time.Now().Before(end); {
			s.toNATS.reset()
			sleep(ctx, backendsPause)
		}
		return nil
	}
	return fmt.Errorf("there is no mode %q to disturb the streams", f.Mode)
}

// wipeStreams loses all messages, or only what the consumers remember, while the nodes use them.
func (s *services) wipeStreams(ctx context.Context, f fault) error {
	heal := context.WithoutCancel(ctx)
	if f.Mode == modeStarted {
		return s.nats.delete(heal, false)
	}
	if f.Mode != modeEmptied {
		defer sleep(ctx, f.Length)
		return s.nats.delete(heal, f.Mode == modeConsumers)
	}
	if err := s.nats.empty(); err != nil {
		return err
	}
	sleep(ctx, f.Length)
	return s.nats.start(heal)
}
