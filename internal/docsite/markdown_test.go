package docsite

import (
	"bytes"
	"html"
	"regexp"
	"strings"
	"testing"
)

var tags = regexp.MustCompile(`<[^>]*>`)

// Colours change no character of the code.
func TestHighlight(t *testing.T) {
	t.Parallel()
	for _, d := range world().documents {
		for _, block := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(
			string(d.text()), -1) {
			shown := tags.ReplaceAllString(string(highlight(block[1], block[2])), "")
			if html.UnescapeString(shown) != block[2] {
				t.Errorf("%s: of\n%sis shown\n%s", d.file, block[2], shown)
			}
		}
	}
	for _, c := range []struct{ language, code, want string }{
		{"sh", "a # b", `a <span class="c"># b</span>`},
		{"sh", "a#b 'it\\' $X", `a#b <span class="s">&#39;it\&#39;</span> <span class="v">$X</span>`},
		{"json", `{"a": "b", "n": 1}`, `{<span class="v">&#34;a&#34;</span>: ` +
			`<span class="s">&#34;b&#34;</span>, <span class="v">&#34;n&#34;</span>: ` +
			`<span class="n">1</span>}`},
		{"python", "return \"\"\"a\nb\"\"\" # c", `<span class="k">return</span> ` +
			`<span class="s">&#34;&#34;&#34;a` + "\n" + `b&#34;&#34;&#34;</span> ` +
			`<span class="c"># c</span>`},
		{"go", "x := `\\` // y", "x := <span class=\"s\">`\\`</span> <span class=\"c\">// y</span>"},
		{"js", "/* a */ let b", `<span class="c">/* a */</span> <span class="k">let</span> b`},
		{"sh", `"open`, `<span class="s">&#34;open</span>`},
		{"", "<b>", "&lt;b&gt;"}, {"none", "<b>", "&lt;b&gt;"},
	} {
		if got := string(highlight(c.language, c.code)); got != c.want {
			t.Errorf("%s: of %q is made\n%s, want\n%s", c.language, c.code, got, c.want)
		}
	}
}

// Tabs are radio buttons, of which the first is chosen; what is bold elsewhere stays a paragraph,
// and other HTML is left out.
func TestTabs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := markdown.Convert([]byte("**no tab**\n\n<!-- tabs -->\n\n**curl**\n\n```sh\ntrue\n```\n\n"+
		"**C & D**\n\nsee\n\n**bold** text\n\n<!-- /tabs -->\n\n<script>x</script>\n\nafter\n\n"+
		"<!-- tabs -->\n\n**curl**\n\none\n\n<!-- /tabs -->\n"), &out); err != nil {
		t.Fatal(err)
	}
	want := `<p><strong>no tab</strong></p>
<div class="languages"><input type="radio" name="tabs-1" id="tab-1-1" value="curl" checked>` +
		`<label for="tab-1-1">curl</label><div class="tab">
<div class="code"><pre tabindex="0"><code>true
</code></pre></div>
</div>
<input type="radio" name="tabs-1" id="tab-1-2" value="C &amp; D"><label for="tab-1-2">` +
		`C &amp; D</label><div class="tab">
<p>see</p>
<p><strong>bold</strong> text</p>
</div>
</div>
<p>after</p>
<div class="languages"><input type="radio" name="tabs-2" id="tab-2-1" value="curl" checked>` +
		`<label for="tab-2-1">curl</label><div class="tab">
<p>one</p>
</div>
</div>
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

// No document has HTML, which the site would leave out.
func TestNoHTML(t *testing.T) {
	t.Parallel()
	for _, d := range world().documents {
		text := regexp.MustCompile("(?s)```.*?```|`[^`]*`").ReplaceAllString(string(d.text()), "")
		text = strings.NewReplacer("<!-- tabs -->", "", "<!-- /tabs -->", "").Replace(text)
		if found := regexp.MustCompile(`</?[a-zA-Z!][^>\n]*>`).FindString(text); found != "" {
			t.Errorf("%s has %s", d.file, found)
		}
	}
}
