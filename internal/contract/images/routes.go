package images

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

const (
	prefix          = "/images/v1/"
	filesPath       = prefix + "files"
	filePath        = filesPath + "/{file_id}"
	jobsPath        = prefix + "jobs"
	deadLettersPath = prefix + "dead-letters"
)

// The bodies of requests, in bytes.
const (
	maxJSONBody  = 64 << 10
	formOverhead = 64 << 10 // of a form, around the file
)

// routes are the routes of uploads and files, jobs, messages and dead letters. Only workers change
// the state of an existing job (IP-036), but for a cancel (RT-003). Content and variants may be
// kept by caches, as serveObject says for how long; what describes a file or a job may not.
func (m *Images) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: filesPath, Action: "upload", Handle: m.upload,
			Query: []string{"sizes", "callback_url"}, ReadsBody: true,
			BodyLimit: m.MaxUpload + formOverhead},
		{Method: http.MethodGet, Pattern: filePath, Action: "get_file", Handle: m.getFile,
			NoStore: true},
		{Method: http.MethodGet, Pattern: filePath + "/content", Action: "get_content",
			Handle: m.getContent},
		{Method: http.MethodHead, Pattern: filePath + "/content", Action: "get_content",
			Handle: m.getContent},
		{Method: http.MethodGet, Pattern: filePath + "/variants/{size}", Action: "get_variant",
			Handle: m.getVariant},
		{Method: http.MethodHead, Pattern: filePath + "/variants/{size}", Action: "get_variant",
			Handle: m.getVariant},
		{Method: http.MethodDelete, Pattern: filePath, Action: "delete_file", Handle: m.deleteFile},
		{Method: http.MethodPost, Pattern: jobsPath, Action: "create_job", Handle: m.submitJob,
			ReadsBody: true},
		{Method: http.MethodGet, Pattern: jobsPath, Action: "list_jobs", Handle: m.listJobs,
			Query: httpapi.PageQuery("status", "type"), NoStore: true},
		{Method: http.MethodGet, Pattern: jobsPath + "/{job_id}", Action: "get_job",
			Handle: m.getJob, NoStore: true},
		{Method: http.MethodPost, Pattern: jobsPath + "/{job_id}/cancel", Action: "cancel_job",
			Handle: m.cancelJob},
		{Method: http.MethodPost, Pattern: prefix + "messages", Action: "send_message",
			Handle: m.resendMessages, ReadsBody: true},
		{Method: http.MethodGet, Pattern: deadLettersPath, Action: "list_dead_letters",
			Handle: m.listDeadLetters, Query: httpapi.PageQuery(), NoStore: true},
		{Method: http.MethodPost, Pattern: deadLettersPath + "/{job_id}/replay", Action: "replay",
			Handle: m.replayDeadLetter},
	}
}
