package handler

// Factory makes the handler of one job type from the type's options. max_parallel_downloads is not
// the handler's: it is for every type.
type Factory func(options map[string]any) (Handler, error)

// Entry is a handler as it is registered.
type Entry struct {
	New Factory
	// Options are the names that New knows. An option with another name stops the start, so that
	// none is misspelt.
	Options []string
}

// Registry holds every handler by the name that settings call it. A new one is one line here.
func Registry() map[string]Entry {
	gallery := Entry{New: newGallery, Options: []string{"album"}}
	return map[string]Entry{
		"default": {New: func(map[string]any) (Handler, error) { return Default{}, nil }},
		"gallery": gallery,

		// the name in the FetchBox document (G-FB-25)
		"fetchbox_handlers::gallery::GalleryHandler": gallery,
	}
}

// Options are the names of all handlers, each with the options it knows.
func Options() map[string][]string {
	all := map[string][]string{}
	for name, entry := range Registry() {
		all[name] = entry.Options
	}
	return all
}
