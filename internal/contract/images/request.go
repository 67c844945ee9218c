package images

import (
	"slices"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/webhook"
)

// What the document leaves open about requests is read so that a client of the original is served
// as it was: members that are not known are ignored, a type or file_id of another type than a text
// counts as missing, and an id that cannot be one names nothing, which is 404 and not 400.

// readObject reads a body that must be a JSON object. What it returns has passed strictjson.Check,
// which the readers of members rely on.
func readObject(c *httpapi.Call) ([]byte, error) {
	text, err := c.JSONBody()
	if err != nil {
		return nil, err
	}
	if err := strictjson.Check(text); err != nil {
		return nil, invalid("the body is not JSON: %v", err)
	}
	if strictjson.KindOf(text) != strictjson.KindObject {
		return nil, invalid("the body is not an object")
	}
	return text, nil
}

// create is a request for a job. Other members, such as a status, are ignored (IP-030).
type create struct {
	jobType string
	fileID  string
	sizes   []int // nil stands for the default sizes
	// callback is the URL that is notified of the end of the job, as sent; empty for none.
	callback string
}

// readCreate reads and validates a request for a job. A type or file_id that is no string counts as
// missing. A file_id that is no UUID names no file: status 404.
func readCreate(c *httpapi.Call) (q create, err error) {
	text, err := readObject(c)
	if err != nil {
		return q, err
	}
	for name, value := range strictjson.Members(text) {
		switch string(name) {
		case "type":
			q.jobType, _ = strictjson.String(value)
		case "file_id":
			q.fileID, _ = strictjson.String(value)
		case "sizes":
			if q.sizes, err = parseSizes(value); err != nil {
				return q, err
			}
		case "callback_url":
			if q.callback, err = readCallback(value); err != nil {
				return q, err
			}
		}
	}
	switch {
	case !slices.Contains(jobTypes, q.jobType):
		return q, invalid("type must be %s or %s", processFile, deleteFile)
	case q.fileID == "":
		return q, invalid("file_id is missing")
	case q.jobType == deleteFile && q.sizes != nil:
		return q, invalid("sizes are for %s", processFile)
	case q.jobType == deleteFile && q.callback != "":
		return q, invalid("callback_url is for %s", processFile)
	}
	var ok bool
	if q.fileID, ok = uuids.Parse(q.fileID); !ok {
		return q, errNoFile
	}
	return q, nil
}

// readCallback reads the URL of a callback; null is none.
func readCallback(raw []byte) (string, error) {
	if strictjson.IsNull(raw) {
		return "", nil
	}
	url, err := strictjson.String(raw)
	if err != nil || url == "" {
		return "", invalid("callback_url must be a URL")
	}
	return url, nil
}

// encodeCallback checks the URL that is notified of the end of a job (WH-005), and returns it as a
// job keeps it; "" for none.
func (m *Images) encodeCallback(url string) (string, error) {
	if url == "" {
		return "", nil
	}
	callback, err := m.Callbacks.Read(webhook.Callback{URL: url}, eventTypes)
	if err != nil {
		return "", invalid("callback_url: %v", err)
	}
	return callback, nil
}

// parseSizes reads a list of sizes; null is none.
func parseSizes(raw []byte) ([]int, error) {
	if strictjson.IsNull(raw) {
		return nil, nil
	}
	if strictjson.KindOf(raw) != strictjson.KindArray {
		return nil, errSizes
	}
	sizes := []int{}
	for _, value := range strictjson.Elements(raw) {
		n, err := strictjson.Int(value, 32)
		if err != nil {
			return nil, errSizes
		}
		sizes = append(sizes, int(n))
	}
	return mergeSizes(sizes)
}

// readJobID reads a request that names a job. The name need not be an id: findJob decides.
func readJobID(c *httpapi.Call) (name string, err error) {
	text, err := readObject(c)
	if err != nil {
		return "", err
	}
	for member, value := range strictjson.Members(text) {
		if string(member) == "job_id" {
			name, _ = strictjson.String(value)
		}
	}
	if name == "" {
		return "", invalid("job_id is missing")
	}
	return name, nil
}
