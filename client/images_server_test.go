package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"

	"github.com/millrace/millrace/client"
)

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(childDir) // nothing where no test needed it
	os.Exit(code)
}

var childDir string

// pictureChild builds the child that processes pictures.
var pictureChild = sync.OnceValues(func() (binary string, err error) {
	if childDir, err = os.MkdirTemp("", "picture-child-"); err != nil {
		return "", err
	}
	binary = filepath.Join(childDir, "child")
	if out, err := exec.Command("go", "build", "-o", binary,
		"../internal/contract/images/picture/testdata/child").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

// serveImages starts a real server of Images with streams and objects of its own, whose workers
// process pictures.
func serveImages(change func(*images.Config)) (url string, stop func(), err error) {
	var closing []func()
	stop = func() {
		for _, end := range closing {
			defer end()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	child, err := pictureChild()
	if err != nil {
		return "", stop, err
	}
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		return "", stop, err
	}
	closing = append(closing, func() { os.RemoveAll(dir) })
	ctx, log := context.Background(), slog.New(slog.DiscardHandler)
	streams, err := stream.Open(ctx, stream.Config{Dir: filepath.Join(dir, "streams"), Node: "test",
		Log: log, Now: time.Now, Specs: images.Streams()})
	if err != nil {
		return "", stop, err
	}
	closing = append(closing, streams.Close)
	objects, err := object.Open(ctx, object.Config{Dir: filepath.Join(dir, "objects"),
		Bucket: "millrace"})
	if err != nil {
		return "", stop, err
	}
	closing = append(closing, func() { objects.Close() })
	c := images.Config{Log: log, API: prometheus.NewRegistry(), Worker: prometheus.NewRegistry(),
		Now: time.Now, Random: testkit.RandomBytes, Node: "test",
		Objects: objects, Bucket: "millrace", Queue: images.Embedded(streams, log), WorkDir: dir,
		Processor: &picture.Processor{Command: []string{child},
			Limits: picture.Limits{Pixels: 1_000_000, Memory: picture.DefaultMemory,
				Timeout: picture.DefaultTimeout}},
		Settings: images.Settings{LockTimeout: time.Minute, MaxAttempts: 3, Sizes: []int{16, 64},
			MaxUpload: 1 << 20, MaxPixels: 1_000_000, Workers: 1},
		Grace: 10 * time.Second}
	if change != nil {
		change(&c)
	}
	url, end, err := serveNode(dir, log, new(images.Settings).Group(),
		func(e *engine.Engine, _ func() time.Duration) (*contract.Contract,
			[]server.Service, error) {
			c.Engine = e
			made, err := images.New(c)
			if err != nil {
				return nil, nil, err
			}
			return made.Offer(), nil, nil
		})
	if err != nil {
		return "", stop, err
	}
	closing = append(closing, end)
	return url, stop, nil
}

// serveNode runs a server of one contract, which build makes with a monotonic clock.
func serveNode(dir string, log *slog.Logger, group *setting.Group,
	build func(*engine.Engine, func() time.Duration) (*contract.Contract,
		[]server.Service, error)) (
	url string, stop func(), err error) {
	ctx, started := context.Background(), time.Now()
	elapsed := func() time.Duration { return time.Since(started) }
	settings, err := config.Load(config.Sources{Flags: map[string]string{"data_dir": dir,
		"listen": "127.0.0.1:0"}, Contracts: []*setting.Group{group},
		Stores: []setting.StoreKind{setting.StoreWord("sqlite")}})
	if err != nil {
		return "", nil, err
	}
	// closed by Run
	opened, err := sqlite.Open(ctx, sqlite.Config{Path: sqlite.Memory, Now: time.Now})
	if err != nil {
		return "", nil, err
	}
	node, err := func() (*server.Server, error) {
		e, err := engine.New(engine.Config{Store: opened, Node: "test", Log: log,
			Random: testkit.RandomBytes, Monotonic: elapsed})
		if err != nil {
			return nil, err
		}
		made, apis, err := build(e, elapsed)
		if err != nil {
			return nil, err
		}
		node, err := server.New(server.Config{Settings: settings, Store: opened, Engine: e,
			Contracts: []*contract.Contract{made}, Services: apis, Log: log, Monotonic: elapsed})
		if err != nil {
			return nil, err
		}
		return node, node.Listen(ctx)
	}()
	if err != nil {
		return "", nil, errors.Join(err, opened.Close())
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- node.Run(running) }()
	return node.URLs()[0], func() { end(); <-ended }, nil
}

// mustImages is a server that ends with the test, and a client of it.
func mustImages(tb testing.TB, cfg client.Config, change func(*images.Config)) *client.Images {
	tb.Helper()
	url, stop, err := serveImages(change)
	must(tb, err)
	tb.Cleanup(stop)
	cfg.BaseURL = url
	c := mustClient(tb, cfg)
	tb.Cleanup(c.CloseIdleConnections)
	return c.Images()
}
