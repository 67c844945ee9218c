package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// envNode names the variable with a folder into which the packages of Node.js were installed.
const envNode = "MILLRACE_BENCH_NODE"

//go:embed queue_node.mjs
var nodeScript []byte

// nodePeer is a library of Node.js, driven by a process of its own.
type nodePeer struct {
	library    string
	modules    string // the folder that holds node_modules
	script     string
	server     string // URL of its database
	clients    int
	pg         *Postgres
	redis      *Redis
	durability string
}

func setupNode(library string) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		p := &nodePeer{library: library, modules: os.Getenv(envNode), clients: env.Clients}
		if err := p.findPackage(ctx, env); err != nil {
			return nil, err
		}
		var err error
		if library == "bullmq" {
			if p.redis, err = redisDurable(ctx, env); err != nil {
				return nil, err
			}
			p.server, p.durability = "redis://"+p.redis.Addr, p.redis.Durability()
		} else {
			if p.pg, err = env.Postgres(ctx, "node"); err != nil {
				return nil, err
			}
			// PostgreSQL's word require checks no certificate; that of these libraries does.
			p.server = strings.Replace(p.pg.URL(), "sslmode=require", "sslmode=no-verify", 1)
			p.durability = p.pg.Durability()
		}
		dir, err := env.Folder("node")
		if err != nil {
			return nil, err
		}
		p.script = filepath.Join(dir, "queue.mjs")
		return p, os.WriteFile(p.script, nodeScript, 0o600)
	}
}

// findPackage looks for Node.js and the library. Without them the case is skipped.
func (p *nodePeer) findPackage(ctx context.Context, env *Env) error {
	if _, err := findProgram("node", "apt-get install nodejs npm"); err != nil {
		return err
	}
	if p.modules == "" {
		return skipf("%s is not set to a folder with %s: npm install --prefix FOLDER %s", envNode,
			p.library, p.library)
	}
	modules, err := filepath.Abs(p.modules)
	if err != nil {
		return err
	}
	p.modules = modules
	text, err := os.ReadFile(filepath.Join(modules, "node_modules", p.library, "package.json"))
	if err != nil {
		return skipf("%s has no package %s: npm install --prefix %s %s", envNode, p.library,
			p.modules, p.library)
	}
	var about struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return err
	}
	node, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return err
	}
	env.addServer(fmt.Sprintf("%s %s on Node.js %s", p.library, about.Version,
		singleLine(string(node))))
	return nil
}

func (p *nodePeer) Durability() string { return p.durability }

func (p *nodePeer) Close() error {
	if p.redis != nil {
		return p.redis.Close()
	}
	return nil
}

// Run has the script submit n jobs and work them. The script proves that each was worked once.
func (p *nodePeer) Run(ctx context.Context, n int) ([]Phase, error) {
	if p.pg != nil {
		if err := p.pg.Recreate(ctx); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "node", p.script, p.modules, p.library, p.server,
		strconv.Itoa(n), strconv.Itoa(p.clients), body)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %.500s", err, singleLine(stderr.String()))
	}
	var took struct {
		Submit float64 `json:"submit_ms"`
		Work   float64 `json:"work_ms"`
	}
	if err := json.Unmarshal(out, &took); err != nil {
		return nil, fmt.Errorf("the script printed %.200q: %w", out, err)
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	insert := Phase{Name: phaseInsert, Jobs: n, Took: ms(took.Submit)}
	work := Phase{Name: phaseWork, Jobs: n, Took: ms(took.Work)}
	return []Phase{insert, work, totalPhase(n, insert, work)}, nil
}
