package work

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/child"
)

// The result of a job is its command's output: JSON as it is, what is no JSON as a string, and of
// what is too long the beginning, as a string.
func TestOutputAsResult(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat("1,", maxResultBytes/2) + "1]" // two bytes too long
	for name, c := range map[string]struct{ output, want string }{
		"none":           {"", ""},
		"white space":    {" \n", ""},
		"JSON":           {" {\"a\": 1}\n", `{"a": 1}`},
		"text":           {"done\n", `"done"`},
		"no UTF-8":       {"a\xffb", "\"a\uFFFDb\""},
		"as long as may": {list[:maxResultBytes-2] + "1]", list[:maxResultBytes-2] + "1]"},
		"JSON, too long": {list, `"` + list[:maxResultBytes] + `"`},
		"text, too long": {strings.Repeat("x", maxResultBytes+1),
			`"` + strings.Repeat("x", maxResultBytes) + `"`},
		"cut in the rune": {strings.Repeat("x", maxResultBytes-1) + "é",
			`"` + strings.Repeat("x", maxResultBytes-1) + "\uFFFD\""},
	} {
		h := &child.Head{Max: maxResultBytes}
		// as it comes, in pieces
		for text := c.output; text != ""; text = text[min(len(text), 1000):] {
			fmt.Fprint(h, text[:min(len(text), 1000)])
		}
		if got := string(resultOf(h)); got != c.want || (got != "" && !json.Valid([]byte(got))) {
			t.Errorf("%s: got %d bytes %.80q, want %d bytes %.80q", name, len(got), got,
				len(c.want), c.want)
		}
		if h.Size != int64(len(c.output)) {
			t.Errorf("%s: counted %d bytes of %d", name, h.Size, len(c.output))
		}
	}
}
