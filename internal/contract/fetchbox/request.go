package fetchbox

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/webhook"
)

// The headers of a submit, as http.Header spells them.
const (
	typeHeader   = "X-Fetchbox-Job-Type"
	keyHeader    = "X-Fetchbox-Idempotency-Key"
	tenantHeader = "X-Fetchbox-Tenant"
	// callbackHeader names the URL that is notified of the end of the job (WH-005).
	callbackHeader = "X-Fetchbox-Callback-Url"

	maxHeader = 1024 // bytes of a key or tenant
)

// submitHeaders are the parsed headers of a submit.
type submitHeaders struct {
	jobType     *jobType
	key, tenant string // empty: none
	callback    string // as the job keeps it; empty: none
	gzipped     bool
}

// readHeaders reads and checks the headers of a submit (FB-003 to FB-009). It comes before the body
// is read: a request for a type that is not registered is refused without it. Its errors are
// Invalid, or 403 for such a type.
func (f *FetchBox) readHeaders(c *httpapi.Call) (h submitHeaders, err error) {
	if !c.HasPlainJSONContentType() { // G-FB-08
		return h, invalid("Content-Type must be application/json")
	}
	name, err := readHeader(c, typeHeader)
	if err != nil {
		return h, err
	}
	if err := checkType(typeHeader, name); err != nil {
		return h, err
	}
	if h.key, err = readHeader(c, keyHeader); err != nil {
		return h, err
	}
	if h.tenant, err = readHeader(c, tenantHeader); err != nil {
		return h, err
	}
	if h.gzipped, err = isGzipped(c); err != nil {
		return h, err
	}
	if h.callback, err = f.readCallbackHeader(c); err != nil {
		return h, err
	}
	if h.jobType = f.types[name]; h.jobType == nil { // G-FB-16
		return h, &httpapi.StatusError{Status: http.StatusForbidden,
			Msg: fmt.Sprintf("the job type %q is not registered", name)}
	}
	return h, nil
}

// checkType refuses what cannot be the name of a job type (G-FB-15). where names the header or
// member that has it.
func checkType(where, name string) error {
	if name == "" {
		return invalid("%s is missing", where)
	}
	if !validType(name) {
		return invalid("%s must be 1 to 64 letters, digits, dots, hyphens and underscores, "+
			"and not begin with a dot", where)
	}
	return nil
}

// readHeader reads a header that may be given once; an absent one is "". A repeated one is refused,
// since the server would have to guess which value is meant.
func readHeader(c *httpapi.Call, name string) (string, error) {
	given := c.Request.Header[name]
	switch {
	case len(given) == 0:
		return "", nil
	case len(given) > 1:
		return "", invalid("%s is given more than once", name)
	case len(given[0]) > maxHeader || !utf8.ValidString(given[0]):
		return "", invalid("%s must be UTF-8 of at most %d bytes", name, maxHeader)
	}
	return given[0], nil
}

// readCallbackHeader reads the URL that is notified of the end of the job. A URL may be longer than
// a key.
func (f *FetchBox) readCallbackHeader(c *httpapi.Call) (string, error) {
	switch given := c.Request.Header[callbackHeader]; len(given) {
	case 0:
		return "", nil
	case 1:
		return f.readCallback(callbackHeader, given[0])
	}
	return "", invalid("%s is given more than once", callbackHeader)
}

// readCallback checks a callback URL and returns it as a job keeps it. where names the header or
// member that has it.
func (f *FetchBox) readCallback(where, url string) (string, error) {
	callback, err := f.Callbacks.Read(webhook.Callback{URL: url}, jobEventTypes)
	if err != nil {
		return "", invalid("%s: %v", where, err)
	}
	return callback, nil
}

// isGzipped reports whether the body is compressed; gzip is the only supported encoding (G-FB-09).
func isGzipped(c *httpapi.Call) (bool, error) {
	given := c.Request.Header["Content-Encoding"]
	if len(given) == 0 {
		return false, nil
	}
	switch encoding := strings.ToLower(given[0]); {
	case len(given) == 1 && encoding == "gzip":
		return true, nil
	case len(given) == 1 && (encoding == "identity" || encoding == ""):
		return false, nil
	}
	return false, invalid("Content-Encoding must be gzip or identity")
}

// readBody reads and decompresses the manifest, up to MaxManifest bytes (FB-024, FB-025).
func (f *FetchBox) readBody(c *httpapi.Call, zipped bool) ([]byte, error) {
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	if zipped {
		if body, err = gunzip(body, f.MaxManifest); err != nil {
			return nil, err
		}
	}
	if int64(len(body)) > f.MaxManifest {
		return nil, tooLarge("the manifest is larger than %d bytes", f.MaxManifest)
	}
	return body, nil
}

// gunzip decompresses up to limit bytes, and one more that shows that there are too many, so a
// small body that would expand without end is read no further (FB-025). Several gzip members are
// one text; other bytes after the last are an error (G-FB-38).
func gunzip(body []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, invalid("the body is not gzip")
	}
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, invalid("the gzip body is truncated or damaged")
	}
	return text, nil
}

// gzipOverhead is by how much a gzip body may be larger than its text: gzip adds a little to a text
// that cannot be compressed. Without this allowance the limit of the body would refuse a manifest
// of the largest size that gzip cannot make smaller.
func gzipOverhead(limit int64) int64 { return limit/1000 + 1<<10 }
