package handler

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Gallery stores the files of a gallery together: a resource with the tag "gallery" gets a key
// below the name of that gallery, whichever job downloads it, with the extension of its URL so that
// browsers show it. The tags become the metadata of the object. It is the example of
// docs/handlers.md.
//
// It has the option album, the prefix of the keys of all galleries.
type Gallery struct {
	Default
	album string
}

func newGallery(options map[string]any) (Handler, error) {
	g := &Gallery{album: "galleries"}
	if v, ok := options["album"]; ok {
		album, ok := v.(string)
		if !ok || album == "" {
			return nil, fmt.Errorf("the option album must be a non-empty string, not %v", v)
		}
		g.album = album
	}
	return g, nil
}

// imageExtensions are the extensions that browsers show as images.
var imageExtensions = map[string]bool{".avif": true, ".gif": true, ".jpeg": true, ".jpg": true,
	".png": true, ".webp": true}

// Adjust implements Handler. It keeps a key that a task has already, so it is idempotent.
func (g *Gallery) Adjust(_ context.Context, tasks []Task) error {
	for i := range tasks {
		if err := g.adjust(&tasks[i]); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gallery) adjust(t *Task) error {
	storage := Storage{}
	if t.Storage != nil {
		storage = *t.Storage
	}
	if name := t.Tags["gallery"]; name != "" && storage.Key == "" {
		u, err := url.Parse(t.URL)
		if err != nil {
			return fmt.Errorf("the URL of %q cannot be read", t.ResourceID)
		}
		storage.Key = Segment(g.album) + "/" + Segment(name) + "/" + Segment(t.ResourceID)
		if extension := strings.ToLower(path.Ext(u.Path)); imageExtensions[extension] &&
			!strings.HasSuffix(storage.Key, extension) {
			storage.Key += extension
		}
	}
	if storage.Metadata == nil {
		storage.Metadata = t.Tags
	}
	t.Storage = &storage
	return nil
}
