package taskflow

import (
	"slices"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// A job may have a callback: a URL that gets its events, or some of them (WH-005). It is set when
// the job is created and stays; a rerun gives it to the copy.

const callbackMember = "callback"

// readCallback reads the member of a job. Which URLs and events are taken is decided by
// encodeCallback: an update may only repeat what the job has.
func (s *jobSpec) readCallback(raw []byte) error {
	if k := strictjson.KindOf(raw); k != strictjson.KindObject {
		return invalid("callback must be an object and is of type %s", k)
	}
	var c webhook.Callback
	for name, value := range strictjson.Members(raw) {
		var err error
		switch string(name) {
		case "url":
			c.URL, err = readText("callback.url", value)
		case "events":
			c.Events = nil
			err = readTexts("callback.events", value, func(_ int, text string) error {
				c.Events = append(c.Events, text)
				return nil
			})
		default:
			err = invalid("callback takes url and events alone")
		}
		if err != nil {
			return err
		}
	}
	if c.URL == "" {
		return invalid("callback.url is missing")
	}
	s.requested = &c
	return nil
}

// encodeCallback checks the callback of a new job, if it has one.
func (t *TaskFlow) encodeCallback(s *jobSpec) (err error) {
	if s.requested == nil {
		return nil
	}
	if s.callback, err = t.Callbacks.Read(*s.requested, eventTypes); err != nil {
		return invalid("callback: %v", err)
	}
	return nil
}

// keepsCallback reports whether the member of an update is the callback that a job has.
func keepsCallback(raw []byte, j *job.Job) bool {
	var s jobSpec
	if s.readCallback(raw) != nil {
		return false
	}
	has := webhook.DecodeCallback(j.Callback)
	return s.requested.URL == has.URL && slices.Equal(s.requested.Events, has.Events)
}

// appendCallback writes the callback of a job, if it has one.
func appendCallback(o *strictjson.Object, j *job.Job) {
	if j.Callback == "" {
		return
	}
	c := webhook.DecodeCallback(j.Callback)
	o.Object(callbackMember, func(o *strictjson.Object) {
		o.Text("url", c.URL)
		if len(c.Events) > 0 {
			o.Texts("events", c.Events)
		}
	})
}
