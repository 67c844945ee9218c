package console

import (
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Links and buttons. Names that users have chosen, such as those of queues, are members of paths:
// pathOf writes such a path and decodeMember reads a member of one, for every name that there can
// be. All paths of pages are made by pathOf, so that no other place has to know of that.

// reservedPrefix begins members of paths that browsers would not send as they are: they take a
// member of one or two dots, escaped or not, for a step in the path. Behind it also stand members
// of our own that are no name, such as that of newSchedule.
const reservedPrefix = "~"

// pathOf returns the path of a page from its members, which it escapes.
func pathOf(members ...string) string {
	var b strings.Builder
	b.WriteString(Path)
	for _, m := range members {
		if m == "." || m == ".." || strings.HasPrefix(m, reservedPrefix) {
			m = reservedPrefix + m
		}
		b.WriteString("/" + url.PathEscape(m))
	}
	return b.String()
}

// decodeMember undoes what pathOf has done to a member.
func decodeMember(escaped string) (string, bool) {
	member, ok := httpapi.DecodePathValue(escaped)
	if !ok {
		return "", false
	}
	member = strings.TrimPrefix(member, reservedPrefix)
	return member, member != ""
}

// jobLink shows the number of a job as a link to its page; nothing for none.
func jobLink(number int64) template.HTML {
	if number == 0 {
		return ""
	}
	text := strconv.FormatInt(number, 10)
	return template.HTML(`<a href="` + Path + "/jobs/" + text + `">` + text + `</a>`)
}

// button shows a form that is one button, to those who may change something. class is the class of
// the button, such as "danger".
func button(viewer admin.Viewer, path, text string, class ...string) template.HTML {
	if viewer.ReadOnly {
		return ""
	}
	return template.HTML(`<form method="post" action="` + template.HTMLEscapeString(path) +
		`"><button class="` + template.HTMLEscapeString(strings.Join(class, " ")) + `">` +
		template.HTMLEscapeString(text) + `</button></form>`)
}

// confirmButton is button for what cannot be undone: the first button unfolds a second one, which
// does it. No script is needed, and a page has one of them unfolded at a time.
func confirmButton(viewer admin.Viewer, path, text string, class ...string) template.HTML {
	form := button(viewer, path, text+" for good", append(slices.Clone(class), "main danger")...)
	if form == "" {
		return ""
	}
	return template.HTML(`<details class="confirm" name="confirm"><summary class="button `+
		template.HTMLEscapeString(strings.Join(class, " "))+`">`+
		template.HTMLEscapeString(text)+`…</summary>`) + form + `</details>`
}

// allOf is the text of a button that acts on several things at once, or on one.
func allOf(text string, n int) string {
	if n > 1 {
		text += " all " + number(n)
	}
	return text
}

// pager is what stands below a page of a list: links to others, and of how many it shows some.
type pager struct{ First, Next, Of string }

// pagerOf returns what stands below the page of a list.
func pagerOf(v view, next, of string) pager { return pager{v.FirstPage, next, of} }

// failureText returns type and text of the failure of a dead letter.
func failureText(l *job.DeadLetter) string {
	kind, text := l.Failure()
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if text == "" {
		return kind
	}
	return kind + ": " + truncate(printable(text), 200)
}

// periodText formats a duration as the settings have it.
func periodText(d time.Duration) string { return setting.FormatDuration(d) }

// percent formats a share; a dash where there is none.
func percent(share float64, ok bool) string {
	if !ok {
		return "–"
	}
	return strconv.FormatFloat(share*100, 'f', 0, 64) + " %"
}
