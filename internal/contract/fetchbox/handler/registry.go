package handler

import "github.com/millrace/millrace/internal/external"

// Factory makes the handler of one job type from the options of the type, without
// max_parallel_downloads, which every type has.
type Factory func(options map[string]any) (Handler, error)

// Entry is a registered handler.
type Entry struct {
	New Factory
	// Options are the names of the options that New reads. The server does not start with another
	// name in its settings, which is probably misspelt.
	Options []string
}

// Registry holds every handler by the name that settings use. A new handler needs one line here.
func Registry() map[string]Entry {
	gallery := Entry{New: newGallery, Options: []string{"album"}}
	return map[string]Entry{
		"default": {New: func(map[string]any) (Handler, error) { return Default{}, nil }},
		"gallery": gallery,

		// the name in the FetchBox document (G-FB-25)
		"fetchbox_handlers::gallery::GalleryHandler": gallery,
	}
}

// Options returns the names of all handlers, each with the names of its options. An External has
// settings of its own in place of options.
func Options() map[string][]string {
	all := map[string][]string{external.Exec: nil, external.HTTP: nil}
	for name, entry := range Registry() {
		all[name] = entry.Options
	}
	return all
}
