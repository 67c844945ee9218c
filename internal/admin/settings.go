package admin

import (
	"slices"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// Setting is one resolved setting of the node, with its secrets masked.
type Setting struct {
	Key     string
	Value   string
	Origin  string // where the value was written
	Default string
	Meaning string
}

// defaultOrigin is the origin of a value that nobody has written.
const defaultOrigin = "default"

// IsChanged reports whether the setting was set, and is not what it is by default.
func (s *Setting) IsChanged() bool { return s.Origin != defaultOrigin }

// settingPages are ordered by key.
var settingPages = newPages(nameCursor("setting"))

// listSettings is GET /admin/v1/settings (AD-062): the settings of the node that answers.
func (a *API) listSettings(c *httpapi.Call) error {
	limit, after, err := settingPages.Read(c)
	if err != nil {
		return err
	}
	all := a.Settings
	begin := slices.IndexFunc(all, func(s Setting) bool { return s.Key > after })
	if begin < 0 {
		begin = len(all)
	}
	all = all[begin:]
	next := ""
	if len(all) > limit {
		all = all[:limit]
		next = settingPages.Cursor.Format(all[limit-1].Key)
	}
	o := newList(len(all), next, func(i int, o *strictjson.Object) {
		o.Text("key", all[i].Key)
		o.Text("value", all[i].Value)
		o.Text("origin", all[i].Origin)
		o.Text("meaning", all[i].Meaning)
	})
	sendObject(c, 200, &o)
	return nil
}
