package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// imageFile is a file of Images at the end, as the API shows it.
type imageFile struct {
	Name     string // of the upload that had its content
	Status   string
	Digest   string         // of its original
	Variants map[int]string // the fault of each, by their sizes; "" for none
	Jobs     int            // that make variants
	IsLeft   bool           // there are objects of it
}

// readImages reads all files that have a job.
func (r *run) readImages(ctx context.Context, f *final, ops []*op) error {
	f.Files = map[string]imageFile{}
	names := map[string]string{} // by digest
	for _, o := range ops {
		for _, m := range o.Made {
			if u, ok := readUploaded(m.Payload); ok {
				names[u.Digest] = u.Of
			}
		}
	}
	type shown struct {
		FileID string `json:"file_id"`
		Type   string `json:"job_type"`
	}
	found := map[string]string{}
	if err := pages(ctx, r, "/images/v1/jobs?limit=100", func(j shown) {
		file := f.Files[j.FileID]
		if j.Type == "process_file" {
			file.Jobs++
		}
		f.Files[j.FileID], found[j.FileID] = file, ""
	}); err != nil {
		return err
	}
	return inParallel(found, func(id, _ string, add func(func())) error {
		file, err := r.readFile(ctx, id)
		add(func() {
			file.Name, file.Jobs = names[file.Digest], f.Files[id].Jobs
			f.Files[id] = file
		})
		return err
	})
}

// readFile reads a file with its original and its variants.
func (r *run) readFile(ctx context.Context, id string) (file imageFile, err error) {
	var shown struct {
		Status   string
		Variants []struct{ Size int }
	}
	path := "/images/v1/files/" + id
	if _, err := r.get(ctx, path, &shown); err != nil {
		return file, err
	}
	file.Status, file.Variants = shown.Status, map[int]string{}
	status, original, err := r.getRaw(ctx, path+"/content")
	if err != nil {
		return file, err
	}
	if status == http.StatusOK {
		file.Digest = digestOf(original)
	}
	for _, v := range shown.Variants {
		status, body, err := r.getRaw(ctx, fmt.Sprint(path, "/variants/", v.Size))
		if err != nil {
			return file, err
		}
		file.Variants[v.Size] = variantFault(status, body, v.Size)
	}
	file.IsLeft, err = r.hasObjectsOf(id)
	return file, err
}

// variantFault returns the fault of an answer that is to be a variant of a size; "" for none.
func variantFault(status int, body []byte, size int) string {
	picture, _, err := image.Decode(bytes.NewReader(body))
	switch {
	case status != http.StatusOK:
		return fmt.Sprint("status ", status)
	case err != nil:
		return err.Error()
	case max(picture.Bounds().Dx(), picture.Bounds().Dy()) != size:
		return fmt.Sprint("it has the size of ", picture.Bounds())
	}
	return ""
}

// hasObjectsOf reports whether a node keeps objects of a file.
func (r *run) hasObjectsOf(id string) (bool, error) {
	entries, err := os.ReadDir(r.objectPath(images, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".attrs") {
			return true, nil
		}
	}
	return false, err
}
