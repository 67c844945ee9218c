package contract

import (
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// This file is what contracts keep besides jobs, as operators see it: the files of Images and the
// manifests of FetchBox.

// Files shows operators the files that a contract keeps. NotFound answers an id that no file has.
type Files interface {
	// List returns up to limit files whose latest job has a number below before, the newest first;
	// before 0 is the beginning. next is the before of the next page, 0 at the end: a page may be
	// short, even empty, while there is a next one.
	List(ctx context.Context, before int64, limit int) (page []File, next int64, err error)
	Get(ctx context.Context, id string) (File, error)
	// Open opens the variant of a size. The caller closes it.
	Open(ctx context.Context, id string, size int) (body io.ReadSeekCloser, modified time.Time,
		mime string, err error)
}

// File is a file with what was made of it.
type File struct {
	ID            string
	Status        string // the contract's word
	Type          string // of the content
	User          string
	Size          int64
	Width, Height int // in pixels; 0 while they are not known
	Variants      []Variant
	Pending       []int // the sizes that are being made
	Job           int64 // the number of the latest job
	UpdatedAt     time.Time
	Path          string // of the contract's own route
}

// Variant is a picture that was made of a file.
type Variant struct {
	Size          int // that was asked for
	Width, Height int
	Bytes         int64
	Object        string
}

// Manifests shows operators what jobs with resources are about. A resource is a job too, a child of
// the job of its manifest.
type Manifests struct {
	Jobs, Resources string // the job types
	// Manifest reads the job of a manifest, with its definition, and Resource that of a resource,
	// with its bodies.
	Manifest func(*job.Job) Manifest
	Resource func(*job.Job) Resource
}

// Manifest is what the job of a manifest is about.
type Manifest struct {
	Tenant string
	Object string // where the manifest itself is stored; "" for none
}

// Resource is what the job of a resource is about. Object, Type and Size describe the stored
// object, and are empty before it is stored.
type Resource struct {
	ID, URL string
	Object  string
	Type    string
	Size    int64
}
