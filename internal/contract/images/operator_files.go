package images

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// Operators see files, of which the engine knows nothing: a file is what its jobs have made of it.
// So files are listed by their latest job, in one pass over the jobs, newest first; an older job of
// a file that was listed is passed over. Nothing is stored for the list, and a page may have fewer
// files than its limit and still have a next one.

// files implements contract.Files.
type files struct{ *Images }

// maxListed bounds how many jobs are looked at for a page of files, and how many of these files are
// read together: a file may have many.
const maxListed = 500

// List implements contract.Files. Each job leads to its file, which is listed at its latest one.
func (f files) List(ctx context.Context, before int64, limit int) (page []contract.File,
	next int64, err error) {
	filter := store.Filter{NewestFirst: true, WithoutBodies: true, Before: before,
		Limit: min(limit+1, filePageSize)}
	for _, queue := range jobTypes {
		filter.Indexes = append(filter.Indexes, store.Index{JobType: Name, Queue: queue})
	}
	for looked := 0; looked < maxListed; looked += filter.Limit {
		found, err := f.Engine.ListPage(ctx, filter)
		if err != nil {
			return nil, 0, err
		}
		of, err := f.loadFiles(ctx, found.Jobs)
		if err != nil {
			return nil, 0, err
		}
		for _, j := range found.Jobs {
			if len(page) == limit {
				return page, filter.Before, nil
			}
			filter.Before = j.Seq
			if loaded := of[j.Owner]; loaded != nil && loaded.latest.Seq == j.Seq {
				page = append(page, loaded.shown())
			}
		}
		if found.Next == 0 {
			return page, 0, nil
		}
	}
	return page, filter.Before, nil
}

// loadFiles reads the files of some jobs, by their ids: together, or each alone where they have too
// many jobs. Those that are gone meanwhile are missing or nil.
func (f files) loadFiles(ctx context.Context, jobs []*job.Job) (map[string]*file, error) {
	var ids []string
	for _, j := range jobs {
		ids = append(ids, j.Owner)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	all := make(map[string]*file, len(ids))
	if len(ids) == 0 {
		return all, nil
	}
	found, err := f.Engine.ListPage(ctx, store.Filter{JobType: Name, Owners: ids,
		NewestFirst: true, Limit: maxListed})
	if err != nil {
		return nil, err
	}
	if found.Next == 0 {
		for _, j := range found.Jobs {
			all[j.Owner] = all[j.Owner].withJob(j)
		}
		return all, nil
	}
	for _, id := range ids {
		if all[id], err = f.loadFile(ctx, id); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// shown is the file as operators see it.
func (f *file) shown() contract.File {
	s := contract.File{ID: f.id, Status: f.status, Type: f.mime(), User: f.upload.UserID,
		Size: f.upload.Bytes, Width: f.processResult.Width, Height: f.processResult.Height,
		Job: f.latest.Seq, UpdatedAt: f.latest.UpdatedAt, Path: filesPath + "/" + f.id}
	if f.status == fileDeleted {
		return s
	}
	s.Pending = f.pendingSizes
	for _, v := range f.processResult.Variants {
		s.Variants = append(s.Variants, contract.Variant{Size: v.Size, Width: v.Width,
			Height: v.Height, Bytes: v.Bytes, Object: v.Key})
	}
	return s
}

// Get implements contract.Files.
func (f files) Get(ctx context.Context, id string) (contract.File, error) {
	found, err := f.byID(ctx, id)
	if err != nil {
		return contract.File{}, err
	}
	return found.shown(), nil
}

// byID reads a file by its id in any case.
func (f files) byID(ctx context.Context, id string) (*file, error) {
	id, ok := uuids.Parse(id)
	if !ok {
		return nil, notFound("file")
	}
	found, err := f.loadFile(ctx, id)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, notFound("file")
	}
	return found, nil
}

// Open implements contract.Files.
func (f files) Open(ctx context.Context, id string, size int) (body io.ReadSeekCloser,
	modified time.Time, mime string, err error) {
	if err := f.Binding.Check(); err != nil {
		return nil, modified, "", err
	}
	found, err := f.byID(ctx, id)
	if err != nil {
		return nil, modified, "", err
	}
	v := found.variant(size)
	if v != nil {
		mime = variantMIME(v.Key, found.id, v.Size)
	}
	if mime == "" || found.status == fileDeleted {
		return nil, modified, "", &job.Error{Kind: job.NotFound, Op: "images.files",
			Msg: "the file has no picture of this size"}
	}
	body, info, err := f.Objects.Open(ctx, "", v.Key)
	return body, info.Modified, mime, err
}
