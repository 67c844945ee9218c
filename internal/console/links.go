package console

import (
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// pathOf returns the path of a page from its members, which it escapes.
func pathOf(members ...string) string {
	var b strings.Builder
	b.WriteString(Path)
	for _, m := range members {
		b.WriteString("/" + url.PathEscape(m))
	}
	return b.String()
}

// jobLink shows the number of a job as a link to its page; nothing for none.
func jobLink(number int64) template.HTML {
	if number == 0 {
		return ""
	}
	text := strconv.FormatInt(number, 10)
	return template.HTML(`<a href="` + Path + "/jobs/" + text + `">` + text + `</a>`)
}

// act shows a form that is one button, to those who may change something. class is that of the
// button, such as "danger".
func act(who admin.Who, path, text string, class ...string) template.HTML {
	if who.ReadOnly {
		return ""
	}
	return template.HTML(`<form method="post" action="` + template.HTMLEscapeString(path) +
		`"><button class="` + template.HTMLEscapeString(strings.Join(class, " ")) + `">` +
		template.HTMLEscapeString(text) + `</button></form>`)
}

// failureText returns type and text of the failure of a dead letter.
func failureText(l *job.DeadLetter) string {
	kind, text := l.Failure()
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if text == "" {
		return kind
	}
	return kind + ": " + short(shown(text), 200)
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
