package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsServers is how many servers a cluster of the bench has.
const natsServers = 3

// setupFetchNATS is FetchBox whose streams are on a cluster, three copies of each.
func setupFetchNATS(ctx context.Context, env *Env) (Runner, error) {
	url, err := startNATSCluster(ctx, env)
	if err != nil {
		return nil, err
	}
	return newFetchRunner(ctx, env, fmt.Sprintf("[stream]\nurl = %q\n", url))
}

// startNATSCluster starts servers that sync always, and answers the addresses of all when they
// have a leader.
func startNATSCluster(ctx context.Context, env *Env) (string, error) {
	dir, err := env.Folder("nats-cluster")
	if err != nil {
		return "", err
	}
	program, err := buildNATS(ctx, dir)
	if err != nil {
		return "", err
	}
	var routes, urls []string
	for range natsServers {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		routes = append(routes, "nats-route://127.0.0.1:"+strconv.Itoa(port))
	}
	for i, route := range routes {
		config := fmt.Sprintf("server_name: n%d\njetstream {\n store_dir: %q\n "+
			"sync_interval: always\n}\ncluster { name: bench, listen: %q, routes: [%s] }\n", i,
			filepath.Join(dir, strconv.Itoa(i)), strings.TrimPrefix(route, "nats-route://"),
			strings.Join(routes, ", "))
		_, addr, err := startPeer(ctx, env, "nats-server", func(port int) *exec.Cmd {
			path := filepath.Join(dir, fmt.Sprintf("n%d.conf", i))
			listen := "listen: 127.0.0.1:" + strconv.Itoa(port) + "\n"
			_ = os.WriteFile(path, []byte(listen+config), 0o600) // without it the server does not start
			return exec.Command(program, "-c", path, "-l", filepath.Join(dir, "log"))
		}, func(ctx context.Context, addr string) error {
			c, err := dialRaw(ctx, addr)
			if err != nil {
				return err
			}
			return c.Close()
		})
		if err != nil {
			return "", err
		}
		urls = append(urls, "nats://"+addr)
	}
	url := strings.Join(urls, ",")
	return url, awaitLeader(ctx, env, url)
}

// awaitLeader waits until a cluster takes a stream of three copies.
func awaitLeader(ctx context.Context, env *Env, url string) error {
	c, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer c.Close()
	js, err := jetstream.New(c)
	if err != nil {
		return err
	}
	env.addServer(fmt.Sprintf("%d nats-server %s sync_interval=always", natsServers,
		c.ConnectedServerVersion()))
	return awaitPeer(ctx, env.children[len(env.children)-1], func(ctx context.Context) error {
		// What is asked before there is a leader gets no answer.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "elected", Replicas: natsServers,
			Subjects: []string{"elected"}})
		return err
	})
}

// setupFetchS3 is FetchBox whose objects are in a bucket.
func setupFetchS3(ctx context.Context, env *Env) (Runner, error) {
	program, err := findProgram("versitygw",
		"go install github.com/versity/versitygw/cmd/versitygw@v1.8.0")
	if err != nil {
		return nil, err
	}
	dir, err := env.Folder("s3")
	if err != nil {
		return nil, err
	}
	const key, bucket = "millrace-bench", "millrace" // the usual bucket
	if err := os.Mkdir(filepath.Join(dir, bucket), 0o755); err != nil {
		return nil, err
	}
	_, addr, err := startPeer(ctx, env, "versitygw", func(port int) *exec.Cmd {
		return exec.Command(program, "--port", "127.0.0.1:"+strconv.Itoa(port), "--access", key,
			"--secret", key, "posix", dir)
	}, func(ctx context.Context, addr string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	if err != nil {
		return nil, err
	}
	env.addServer("versitygw")
	// The server of Millrace has the environment of the bench.
	for _, variable := range [][2]string{{"AWS_ACCESS_KEY_ID", key},
		{"AWS_SECRET_ACCESS_KEY", key}, {"AWS_REGION", "us-east-1"}} {
		if err := os.Setenv(variable[0], variable[1]); err != nil {
			return nil, err
		}
	}
	return newFetchRunner(ctx, env, fmt.Sprintf("[objects]\nurl = %q\n", "s3://"+
		"?region=us-east-1&use_path_style=true&endpoint=http://"+addr))
}
