package fetchbox

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// A manifest is checked completely before anything is stored, and refused with its first error
// (FB-026, FB-039). Only what FetchBox uses is decoded; metadata and attributes stay as the bytes
// that were sent, since handlers read them. The manifest that is stored is the text itself (FB-013,
// G-FB-11).

// The limits of a manifest that are not settings.
const (
	version     = "v1"
	maxIDChars  = 128  // FB-015
	maxMapKeys  = 10   // FB-018; tags as well (G-FB-18)
	maxMapValue = 1024 // bytes (FB-019)
)

// readManifest parses and validates a manifest (FB-010 to FB-022). The metadata and attributes that
// it returns are slices of text. Unknown members are ignored, as the document says.
func readManifest(text []byte, maxResources int) (m handler.Manifest, err error) {
	if err := strictjson.Check(text); err != nil {
		return m, invalid("the body is not JSON: %v", err)
	}
	if strictjson.KindOf(text) != strictjson.KindObject {
		return m, invalid("the body must be an object")
	}
	var resources []byte
	for name, value := range strictjson.Members(text) {
		switch string(name) {
		case "manifest_version":
			m.Version, _ = strictjson.String(value) // any other kind is not v1 either
		case "metadata":
			m.Metadata = value
		case "attributes":
			m.Attributes = value
		case "resources":
			resources = value
		}
	}
	switch {
	case m.Version != version:
		return m, invalid("manifest_version must be %q", version)
	case strictjson.KindOf(m.Metadata) != strictjson.KindObject:
		return m, invalid("metadata must be an object")
	case m.Attributes != nil && strictjson.KindOf(m.Attributes) != strictjson.KindObject:
		return m, invalid("attributes must be an object where it is given")
	case strictjson.KindOf(resources) != strictjson.KindArray:
		return m, invalid("resources must be an array")
	}
	m.Resources, err = readResources(resources, maxResources)
	return m, err
}

// readResources reads the resources, of which there must be one to maxResources, each with an id of
// its own (FB-014, FB-015). It stops at the first error, so that the rest of a manifest with too
// many is not decoded.
func readResources(raw []byte, maxResources int) (all []handler.Resource, err error) {
	seen := map[string]bool{}
	for i, value := range strictjson.Elements(raw) {
		if i >= maxResources {
			return nil, invalid("resources has more than %d entries", maxResources)
		}
		r, err := readResource(value)
		if err != nil {
			return nil, invalid("resources[%d]: %s", i, err.Error())
		}
		if seen[r.ID] {
			return nil, invalid("resources[%d]: another one has the id %q", i, r.ID)
		}
		seen[r.ID] = true
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, invalid("resources must have an entry")
	}
	return all, nil
}

// validationError describes the invalid member of one resource. readResources adds the index of the
// resource and makes an error of the kind Invalid of it.
type validationError string

// Error implements error.
func (e validationError) Error() string { return string(e) }

// readResource reads one resource (FB-015 to FB-020). Unknown members are ignored, and the last one
// of a repeated member counts (G-X-15).
func readResource(raw []byte) (r handler.Resource, err error) {
	if strictjson.KindOf(raw) != strictjson.KindObject {
		return r, validationError("it must be an object")
	}
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "id":
			r.ID, err = strictjson.String(value)
		case "url":
			r.URL, err = strictjson.String(value)
		case "headers":
			r.Headers, err = readMap(value)
		case "tags":
			r.Tags, err = readMap(value)
		default:
			continue
		}
		if err != nil {
			return r, validationError(string(name) + ": " + err.Error())
		}
	}
	if n := utf8.RuneCountInString(r.ID); n < 1 || n > maxIDChars {
		return r, validationError("id must be a string of 1 to 128 characters without U+0000")
	}
	if _, err := egress.ParseURL(r.URL); err != nil { // G-FB-13
		return r, validationError("url: " + err.Error())
	}
	return r, checkHeaders(r.Headers)
}

// readMap reads an object of strings, within the limits of headers and tags. A name with U+0000 or
// a lone surrogate is an error.
func readMap(raw []byte) (map[string]string, error) {
	if strictjson.KindOf(raw) != strictjson.KindObject {
		return nil, validationError("it must be an object of strings")
	}
	m := map[string]string{}
	for quoted, value := range strictjson.RawMembers(raw) {
		name, err := strictjson.String(quoted)
		if err != nil {
			return nil, err
		}
		if m[name], err = strictjson.String(value); err != nil {
			return nil, validationError("the value of " + name + " must be a string without U+0000")
		}
		if len(m[name]) > maxMapValue {
			return nil, validationError("the value of " + name + " is longer than 1024 bytes")
		}
	}
	if len(m) > maxMapKeys {
		return nil, validationError("it has more than 10 keys")
	}
	return m, nil
}

// checkHeaders refuses headers that cannot be sent (FB-020), and those that a download sets itself.
func checkHeaders(headers map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		if err := egress.CheckHeader(name, value); err != nil {
			return validationError("headers: " + err.Error())
		}
		if strings.Contains(value, "\t") {
			return validationError("headers: the value of " + name + " has a control character")
		}
	}
	return nil
}

// validType reports whether a text can be a job type (G-FB-15). The name becomes a part of object
// keys and of paths in a directory, hence neither a slash nor a leading dot.
func validType(name string) bool {
	if len(name) < 1 || len(name) > 64 || name[0] == '.' {
		return false
	}
	for i := range len(name) {
		if !isTypeChar(name[i]) {
			return false
		}
	}
	return true
}

// isTypeChar reports whether the name of a job type may contain a byte.
func isTypeChar(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '-'
}
