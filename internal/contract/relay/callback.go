package relay

import (
	"errors"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// A job of version 2 may have a callback: a URL that is notified when the job is completed, given
// up or deleted (WH-005). It is part of the definition of the job, as its payload is.

// readCallbackURL reads the member callback_url; null is none. Whether the URL is taken is decided
// by encodeCallback.
func readCallbackURL(raw []byte) (string, error) {
	if raw == nil || strictjson.IsNull(raw) {
		return "", nil
	}
	url, err := strictjson.String(raw)
	switch {
	case errors.Is(err, strictjson.ErrKind):
		return "", malformed("callback_url must be a string")
	case err != nil:
		return "", invalid("callback_url: %v", err)
	case url == "":
		return "", invalid("callback_url is empty")
	}
	return url, nil
}

// ignoreCallbackURL is readCallbackURL of version 1, which has no callbacks.
func ignoreCallbackURL([]byte) (string, error) { return "", nil }

// encodeCallback checks the callback URL of a job that was read, if it has one. Without callbacks
// on this node the request is wrong, whatever the URL.
func (r *Relay) encodeCallback(j *job.Job) (err error) {
	if j.Callback == "" {
		return nil
	}
	j.Callback, err = r.Callbacks.Read(webhook.Callback{URL: j.Callback}, eventTypes)
	switch {
	case errors.Is(err, contract.ErrNoCallbacks):
		return malformed("callback_url: %v", err)
	case err != nil:
		return invalid("callback_url: %v", err)
	}
	return nil
}

// appendCallback writes the callback of a job that has one. Others have no such member: it is not
// of the document, whose clients need not know it.
func appendCallback(b []byte, j *job.Job) []byte {
	if j.Callback == "" {
		return b
	}
	b = append(b, `,"callback_url":`...)
	return strictjson.AppendString(b, webhook.DecodeCallback(j.Callback).URL)
}
