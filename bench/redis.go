package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// envRedis names the variable with the host:port of a Redis that may be used for the case without
// persistence.
const (
	envRedis     = "MILLRACE_TEST_REDIS"
	defaultRedis = "127.0.0.1:6379"
)

// Redis is a server that answers, and what it says about its persistence.
type Redis struct {
	Addr       string
	version    string
	appendonly string
	fsync      string
	save       string
	child      *Child // nil for a server that was there before
}

// redisMemory finds a Redis for the case without persistence: the one the environment names, else
// an own process, else the one at the usual address. An own process is preferred because nobody
// else's data or load is on it.
func redisMemory(ctx context.Context, env *Env) (*Redis, error) {
	if addr := os.Getenv(envRedis); addr != "" {
		return redisAt(ctx, env, addr)
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		return redisAt(ctx, env, defaultRedis)
	}
	return redisStart(ctx, env, "redis-memory", "--appendonly", "no")
}

// redisDurable starts a Redis that syncs its log before it answers.
func redisDurable(ctx context.Context, env *Env) (*Redis, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, skipf("no redis-server in PATH to start with appendfsync always")
	}
	return redisStart(ctx, env, "redis-durable", "--appendonly", "yes", "--appendfsync", "always")
}

func redisAt(ctx context.Context, env *Env, addr string) (*Redis, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envRedis, err)
	}
	if err := checkLocal(host); err != nil {
		return nil, skipf("Redis: %v", err)
	}
	r := &Redis{Addr: addr}
	if err := r.inspect(ctx); err != nil {
		return nil, skipf("no Redis at %s and no redis-server in PATH: %v", addr, err)
	}
	env.addServer(r.Describe())
	return r, nil
}

// redisStart runs a Redis in the bench's folder.
func redisStart(ctx context.Context, env *Env, name string, args ...string) (*Redis, error) {
	dir, err := env.Folder(name)
	if err != nil {
		return nil, err
	}
	r := &Redis{}
	r.child, r.Addr, err = startPeer(ctx, env, "redis-server", func(port int) *exec.Cmd {
		return exec.Command("redis-server", append([]string{
			"--bind", "127.0.0.1", "--port", strconv.Itoa(port),
			"--dir", dir, "--daemonize", "no", "--save", "", "--logfile", "redis.log",
		}, args...)...)
	}, func(ctx context.Context, addr string) error {
		r.Addr = addr
		return r.inspect(ctx)
	})
	if err != nil {
		return nil, err
	}
	env.addServer(r.Describe())
	return r, nil
}

// inspect asks the server for its version and its persistence.
func (r *Redis) inspect(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			r.version = strings.TrimSpace(v)
		}
	}
	for _, setting := range []struct {
		name  string
		value *string
	}{{"appendonly", &r.appendonly}, {"appendfsync", &r.fsync}, {"save", &r.save}} {
		value, err := client.ConfigGet(ctx, setting.name).Result()
		if err != nil {
			return err
		}
		*setting.value = value[setting.name]
	}
	return nil
}

// Durability says what the server's settings promise.
func (r *Redis) Durability() string {
	switch {
	case r.appendonly == "yes" && r.fsync == "always":
		return "durable: fsync of the append-only file before each answer"
	case r.appendonly == "yes":
		return "NOT durable at acknowledgement: append-only file with appendfsync " + r.fsync
	case r.save != "":
		return "NOT durable: snapshots only (save " + r.save + ")"
	default:
		return "NOT durable: memory only, a crash of Redis loses every job"
	}
}

// Describe is one line for the report.
func (r *Redis) Describe() string {
	owner := "own process"
	if r.child == nil {
		owner = "found at " + r.Addr
	}
	return fmt.Sprintf("Redis %s (%s) appendonly=%s appendfsync=%s save=%q",
		r.version, owner, r.appendonly, cmp.Or(r.fsync, "-"), r.save)
}

// Close stops the process if the bench started it.
func (r *Redis) Close() error {
	if r.child == nil {
		return nil
	}
	return r.child.Stop()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
