package console

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
)

// settingsPage is what the page of the settings shows: those that were set, and all of them by
// their parts, which are folded until they are asked for. A search shows what it finds alone.
type settingsPage struct {
	Text    string
	Changed []admin.Setting
	Parts   []settingPart
	Found   int // by the search
	All     int
}

// settingPart is a part of the settings.
type settingPart struct {
	Name     string // the first member of their keys; "" for those of the node
	Settings []admin.Setting
	Changed  int // how many of them were set
}

// minPart is how many settings a part of its own has. Those of smaller parts are the node's.
const minPart = 5

// showSettings is GET /console/settings.
func (o *Console) showSettings(c *httpapi.Call) (view, error) {
	text, _, err := c.Query("text")
	if err != nil {
		return view{}, err
	}
	return view{Name: "settings", Title: "Settings", Page: settingsOf(o.api.Settings, text)}, nil
}

// settingsOf returns the page about settings that have a text in one of their columns.
func settingsOf(all []admin.Setting, text string) settingsPage {
	p := settingsPage{Text: text, All: len(all)}
	sizes := map[string]int{}
	for i := range all {
		sizes[partOf(all[i].Key)]++
	}
	for _, s := range all {
		columns := strings.ToLower(s.Key + "\n" + s.Value + "\n" + s.Meaning + "\n" + s.Origin)
		if !strings.Contains(columns, strings.ToLower(text)) {
			continue
		}
		p.Found++
		name := partOf(s.Key)
		if sizes[name] < minPart {
			name = ""
		}
		at := slices.IndexFunc(p.Parts, func(part settingPart) bool { return part.Name == name })
		if at < 0 {
			at = len(p.Parts)
			p.Parts = append(p.Parts, settingPart{Name: name})
		}
		part := &p.Parts[at]
		part.Settings = append(part.Settings, s)
		if s.IsChanged() {
			part.Changed++
			p.Changed = append(p.Changed, s)
		}
	}
	slices.SortStableFunc(p.Parts, func(a, b settingPart) int {
		return strings.Compare(a.Name, b.Name)
	})
	return p
}

// partOf returns the first member of a key, "" where it is the only one.
func partOf(key string) string {
	part, _, isOfPart := strings.Cut(key, ".")
	if !isOfPart {
		return ""
	}
	return part
}

// sourceOf says where a setting was written, without its key, beside which that stands.
func sourceOf(s admin.Setting) string { return strings.TrimSuffix(s.Origin, " "+s.Key) }
