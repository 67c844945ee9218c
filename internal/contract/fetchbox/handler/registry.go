package handler

import (
	"maps"
	"slices"
)

// Factory makes the handler of one job type from the type's options. Options it does not know belong to others.
type Factory func(options map[string]any) (Handler, error)

// Registry holds every handler by the name that settings call it. A new one is one line here.
func Registry() map[string]Factory {
	return map[string]Factory{
		"default": func(map[string]any) (Handler, error) { return Default{}, nil },
		"gallery": newGallery,

		"fetchbox_handlers::gallery::GalleryHandler": newGallery, // the name in the FetchBox document (G-FB-25)
	}
}

// Names are the names of all handlers, sorted.
func Names() []string { return slices.Sorted(maps.Keys(Registry())) }
