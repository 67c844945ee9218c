package console

import (
	"html/template"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// A state is shown by a colour, a shape and a word, so that none of them is needed alone. Contracts
// have words of their own for states, of which this package knows none: a job that is not done is
// shown by its phase, and one that is done by parts of its word that say how it has ended.

// The shapes of states, in a field of 12 by 12.
const (
	ring     = `<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="2"/>`
	disk     = `<circle cx="6" cy="6" r="4.5" fill="currentColor"/>`
	triangle = `<path d="M3 1.5v9l7-4.5z" fill="currentColor"/>`
	check    = `<path d="M1.5 6.5 4.5 9.5 10.5 2.5" fill="none" stroke="currentColor" ` +
		`stroke-width="2"/>`
	cross = `<path d="M2.5 2.5l7 7M9.5 2.5l-7 7" fill="none" stroke="currentColor" ` +
		`stroke-width="2"/>`
	bars  = `<path d="M3.5 2v8M8.5 2v8" fill="none" stroke="currentColor" stroke-width="2.5"/>`
	slash = `<path d="M2 10 10 2" fill="none" stroke="currentColor" stroke-width="2.5"/>`
)

// badges are the class and the shape of words.
var badges = map[string]struct{ class, shape string }{
	"waiting": {"waiting", ring}, "ready": {"ready", disk}, "running": {"leased", triangle},
	"leased": {"leased", triangle}, "done": {"good", check}, "dead": {"bad", cross},
	"ok": {"good", check}, "failing": {"bad", cross}, "refused": {"bad", slash},
	"paused": {"off", bars}, "draining": {"off", bars}, "canceled": {"off", slash},
	"enabled": {"good", check}, "disabled": {"off", bars}, "replayed": {"good", check},
	"open": {"bad", cross}, "delivered": {"good", check}, "pending": {"ready", disk},
	"exhausted": {"bad", cross}, "attention": {"bad", cross}, "missed": {"bad", cross},
	"submitted": {"good", check}, "active": {"good", check}, "revoked": {"off", slash},
	"expired": {"off", slash}, "skipped": {"off", slash}, "delayed": {"waiting", ring},
	"lost": {"bad", slash}, "limited": {"leased", bars}, "gone": {"bad", slash},
}

// stateBadge shows a word that has a badge.
func stateBadge(word string) template.HTML {
	return badge(badges[word].class, badges[word].shape, word)
}

// phaseWord is the word of pages for a phase: that of what a worker does with the job.
func phaseWord(phase string) string {
	if phase == job.Leased.String() {
		return "running"
	}
	return phase
}

// fileBadges are the words of badges for the states of files.
var fileBadges = map[string]string{"processing": "running", "ready": "done", "failed": "dead",
	"deleted": "canceled"}

// fileState shows the state of a file.
func fileState(word string) template.HTML {
	m := badges[fileBadges[word]]
	return badge(m.class, m.shape, word)
}

// jobState shows the state of a job in the word of its contract.
func jobState(phase, state string) template.HTML {
	class, shape := jobBadge(phase, state)
	return badge(class, shape, state)
}

// jobBadge returns class and shape of a job by its phase: jobs that are done look like what has
// gone well unless their state says otherwise.
func jobBadge(phase, state string) (class, shape string) {
	m := badges[phase]
	if phase == "done" && slices.ContainsFunc(failureWords, func(word string) bool {
		return strings.Contains(strings.ToLower(state), word)
	}) {
		m = badges["dead"]
		if strings.Contains(strings.ToLower(state), "cancel") {
			m = badges["canceled"]
		}
	}
	return m.class, m.shape
}

// failureWords are parts of the states in which jobs end that have not gone well.
var failureWords = []string{"fail", "cancel", "dead", "block", "reject", "error", "timeout",
	"exhaust", "gone"}

// badge shows a word with a class and a shape.
func badge(class, shape, word string) template.HTML {
	if shape == "" {
		class, shape = "waiting", ring
	}
	return template.HTML(`<span class="state ` + class +
		`"><svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">` + shape +
		`</svg>` + template.HTMLEscapeString(printable(word)) + `</span>`)
}
