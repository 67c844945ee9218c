package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fetchJob is a job of FetchBox at the end, as the API shows it, with its stored objects.
type fetchJob struct {
	Name                     string // of its stored manifest
	Status                   string
	Total, Completed, Failed int
	Manifest                 string
	Stored                   map[string]string // the contents of its resources, by their ids
	Dead                     map[string]bool   // the resources that have a dead letter
}

// readFetch reads all jobs and their dead letters by API, and the stored objects from the directory
// of the objects.
func (r *run) readFetch(ctx context.Context, f *final) error {
	f.Fetch = map[string]fetchJob{}
	type shown struct {
		JobID     string `json:"job_id"`
		Status    string
		Total     int `json:"resource_total"`
		Completed int `json:"resource_completed"`
		Failed    int `json:"resource_failed"`
	}
	err := pages(ctx, r, "/operators/jobs?limit=100", func(s shown) {
		f.Fetch[s.JobID] = fetchJob{Status: s.Status, Total: s.Total, Completed: s.Completed,
			Failed: s.Failed, Dead: map[string]bool{}}
	}, operatorToken)
	if err != nil {
		return err
	}
	type deadLetter struct {
		Task struct {
			JobID      string `json:"job_id"`
			ResourceID string `json:"resource_id"`
		}
	}
	if err := pages(ctx, r, "/operators/dlq?limit=100", func(l deadLetter) {
		if j, known := f.Fetch[l.Task.JobID]; known {
			j.Dead[l.Task.ResourceID] = true
		}
	}, operatorToken); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(f.Fetch)) {
		j := f.Fetch[id]
		if err := r.readFetched(id, &j); err != nil {
			return err
		}
		f.Fetch[id] = j
	}
	return nil
}

// objectPath is where a node keeps an object, or the S3 server of several.
func (r *run) objectPath(parts ...string) string {
	dir := filepath.Join(r.plan.Dir, "node0", "objects", "millrace")
	if r.services != nil {
		dir = r.services.objects
	}
	return filepath.Join(append([]string{dir}, parts...)...)
}

// readFetched reads the manifest of a job and its resources. A member that is not there stays
// empty.
func (r *run) readFetched(id string, j *fetchJob) error {
	text, err := os.ReadFile(r.objectPath("manifests", fetchType, id, "metadata.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var m manifest
	_ = json.Unmarshal(text, &m) // what is damaged differs from what was sent
	j.Manifest, j.Name = string(text), m.Metadata["of"]
	dir := r.objectPath("resources", fetchType, id)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	j.Stored = map[string]string{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".attrs") { // beside an object
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		j.Stored[e.Name()] = string(text)
	}
	return nil
}
