package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// millraceHTTP is the real binary measuring itself over HTTP: `millrace bench` starts a fresh
// server process on SQLite and drives it from another process.
type millraceHTTP struct {
	binary     string
	dir        string
	load       string // batches, whole or singles
	durability string
}

func setupMillraceHTTP(load string) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		dir, err := env.Folder("millrace-" + load)
		if err != nil {
			return nil, err
		}
		binary, err := millrace.build(ctx)
		if err != nil {
			return nil, err
		}
		return &millraceHTTP{binary: binary, dir: dir, load: load}, nil
	}
}

func (m *millraceHTTP) Durability() string { return m.durability }

func (m *millraceHTTP) Close() error { return nil }

// Run sends n jobs through 64 connections, each of which enqueues, claims and completes over and
// over. A batch is enqueued and claimed in one request. It is completed job by job, as the protocol
// has it, or with whole batches in one request too.
func (m *millraceHTTP) Run(ctx context.Context, n int) ([]Phase, error) {
	jobs, singles := strconv.Itoa(n), "0"
	if m.load == "singles" {
		jobs, singles = singles, jobs
	}
	cmd := exec.CommandContext(ctx, m.binary, "bench", "--json", "--dir", m.dir, "--jobs", jobs,
		"--singles", singles, fmt.Sprintf("--complete-batches=%t", m.load == "whole"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, singleLine(stderr.String()))
	}
	var report struct {
		Durability string `json:"durability"`
		Loads      []struct {
			Took time.Duration `json:"took_ns"`
		} `json:"loads"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, err
	}
	m.durability = report.Durability
	if len(report.Loads) != 1 {
		return nil, fmt.Errorf("%d loads were reported, not one", len(report.Loads))
	}
	return []Phase{{Name: phaseTotal, Jobs: n, Took: report.Loads[0].Took}}, nil
}
