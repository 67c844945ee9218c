package handler

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Gallery keeps the files of a gallery together: what has the tag "gallery" lies under that name,
// whatever job brought it, with the ending of its URL so that a browser shows it. All carry their
// tags as metadata. It is the worked example of docs/handlers.md.
//
// Options: album, what the keys of all galleries begin with.
type Gallery struct {
	Default
	album string
}

func newGallery(options map[string]any) (Handler, error) {
	g := &Gallery{album: "galleries"}
	if v, ok := options["album"]; ok {
		album, ok := v.(string)
		if !ok || album == "" {
			return nil, fmt.Errorf("the option album must be a text, not %v", v)
		}
		g.album = album
	}
	return g, nil
}

// imageExtensions are those a browser knows what to do with.
var imageExtensions = map[string]bool{".avif": true, ".gif": true, ".jpeg": true, ".jpg": true,
	".png": true, ".webp": true}

// Adjust implements Adjuster. A task that says itself where it goes stays there, so adjusting twice
// is adjusting once.
func (g *Gallery) Adjust(_ context.Context, t Task) (Task, error) {
	storage := Storage{}
	if t.Storage != nil {
		storage = *t.Storage
	}
	if name := t.Tags["gallery"]; name != "" && storage.Key == "" {
		u, err := url.Parse(t.URL)
		if err != nil {
			return t, fmt.Errorf("the URL of %q cannot be read", t.ResourceID)
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
	return t, nil
}
