package docsite

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// A search goes through the text of all sections, word by word. Results are sections and not pages,
// so a link leads to the place. The answer is a page like others, made on the server: a search
// works without a script, and its address can be sent on.

// searchPath is the path of the results of a search.
const searchPath = Path + "/search"

const (
	maxQuery   = 200 // bytes of a query that count
	maxWords   = 8   // words of a query that count
	maxResults = 40
	aroundWord = 110 // bytes of a section before and after the word that was found
)

// section is what stands under a heading of a page.
type section struct {
	url     string // with the anchor
	page    string // the title of the page
	heading string // "" for what stands before the first heading
	text    string
	weight  int // in percent: pages that are read seldom come later
}

// index has the sections of all pages. All of them are half a megabyte, which is gone through in
// a millisecond or two: there is no other structure.
type index struct {
	sections []section
	lower    []lowered // of each section
}

// lowered are the texts of a section in small letters.
type lowered struct{ title, text string }

// makeIndex reads all pages.
func (s *Site) makeIndex() *index {
	x := &index{}
	for _, d := range s.documents {
		x.sections = append(x.sections, d.rendered().sections...)
	}
	for _, a := range s.apis {
		x.sections = append(x.sections, a.sections()...)
	}
	for i := range x.sections {
		one := &x.sections[i]
		x.lower = append(x.lower, lowered{strings.ToLower(one.page + " " + one.heading),
			strings.ToLower(one.text)})
	}
	return x
}

// sectionsOf divides a document at its headings of the second and third level.
func sectionsOf(d *document, src []byte, title string, tree ast.Node) []section {
	weight := 100
	switch {
	case strings.HasPrefix(d.file, "docs/decisions/"), strings.HasPrefix(d.file, "docs/contracts/"),
		!strings.HasPrefix(d.file, "docs/"):
		weight = 40
	case strings.HasPrefix(d.file, "docs/reference/"):
		weight = 110 // names of settings, metrics and codes stand there
	}
	all := []section{{url: d.url, page: title, weight: weight}}
	for n := tree.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		switch {
		case ok && h.Level == 1:
		case ok && h.Level <= 3:
			all = append(all, section{url: d.url + "#" + headingID(h), page: title,
				heading: plain(h, src), weight: weight})
		default:
			last := &all[len(all)-1]
			last.text = strings.TrimSpace(last.text + " " + strings.Join(
				strings.Fields(plain(n, src)), " "))
		}
	}
	return all
}

// result is a section that a search has found.
type result struct {
	URL, Page, Heading string
	Text               []fragment
	score              int
}

// fragment is a part of a text, which may be what was searched for.
type fragment struct {
	Text   string
	IsMark bool
}

// find returns the sections that have all words of a query, the best first.
func (x *index) find(query string) []result {
	words := queryWords(query)
	if len(words) == 0 {
		return nil
	}
	var all []result
	for i := range x.sections {
		score, one := x.lower[i].score(words), &x.sections[i]
		if score == 0 {
			continue
		}
		if one.heading == "" && strings.EqualFold(one.page, strings.Join(words, " ")) {
			score *= 4 // a page that is named so
		}
		all = append(all, result{URL: one.url, Page: one.page, Heading: one.heading,
			Text: excerpt(one.text, words), score: score * one.weight})
	}
	slices.SortStableFunc(all, func(a, b result) int { return cmp.Compare(b.score, a.score) })
	return all[:min(len(all), maxResults)]
}

// queryWords returns the words of a query in small letters.
func queryWords(query string) []string {
	query = strings.ToValidUTF8(query[:min(len(query), maxQuery)], "")
	words := strings.FieldsFunc(strings.ToLower(query), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '`' || r == '"'
	})
	return words[:min(len(words), maxWords)]
}

// score says how well a section has the words; 0 unless it has all of them. A word in a heading
// counts more than any number of them in the text, a whole word more than a part of one.
func (l lowered) score(words []string) (sum int) {
	for _, word := range words {
		inTitle, inText := countWord(l.title, word), countWord(l.text, word)
		if inTitle+inText == 0 {
			return 0
		}
		sum += 12*min(inTitle, 6) + min(inText, 12)
	}
	return sum
}

// countWord counts where a text has a word: 3 for each place where it stands alone, 1 for others.
func countWord(text, word string) (n int) {
	for at := 0; ; {
		next := strings.Index(text[at:], word)
		if next < 0 {
			return n
		}
		from, to := at+next, at+next+len(word)
		before, _ := utf8.DecodeLastRuneInString(text[:from])
		after, _ := utf8.DecodeRuneInString(text[to:])
		if isWord(before) || isWord(after) {
			n++
		} else {
			n += 3
		}
		at = to
	}
}

// excerpt returns what stands around the first of the words, with all of them marked.
func excerpt(text string, words []string) []fragment {
	lower := strings.ToLower(text)
	if len(lower) != len(text) { // a letter whose small form has another length
		lower = text
	}
	first := len(text)
	for _, word := range words {
		if at := strings.Index(lower, word); at >= 0 {
			first = min(first, at)
		}
	}
	if first == len(text) {
		first = 0
	}
	from, to := max(0, first-aroundWord), min(len(text), first+2*aroundWord)
	if at := strings.IndexByte(text[from:first], ' '); from > 0 && at >= 0 {
		from += at + 1
	}
	if at := strings.LastIndexByte(text[first:to], ' '); to < len(text) && at > 0 {
		to = first + at
	}
	var all []fragment
	if from > 0 {
		all = append(all, fragment{Text: "… "})
	}
	all = append(all, mark(text[from:to], lower[from:to], words)...)
	if to < len(text) {
		all = append(all, fragment{Text: " …"})
	}
	return all
}

// mark divides a text at the words.
func mark(text, lower string, words []string) (all []fragment) {
	for text != "" {
		at, length := len(text), 0
		for _, word := range words {
			if i := strings.Index(lower, word); i >= 0 && i < at {
				at, length = i, len(word)
			}
		}
		all = append(all, fragment{Text: strings.ToValidUTF8(text[:at], "")})
		if length > 0 {
			all = append(all, fragment{text[at : at+length], true})
		}
		text, lower = text[at+length:], lower[at+length:]
	}
	return all
}

// results is what the page of a search shows.
type results struct {
	Found []result
	Some  bool // whether a query was given
	More  bool // whether there may be others
}

// searchAnswer is the page of a search.
func (s *Site) searchAnswer(query string) *answer {
	query = strings.ToValidUTF8(strings.TrimSpace(query[:min(len(query), maxQuery)]), "")
	found := s.search().find(query)
	return s.page("search", http.StatusOK, &view{Title: "Search", Path: searchPath, Query: query,
		Page: results{found, query != "", len(found) == maxResults}})
}
