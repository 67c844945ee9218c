package docsite

import (
	"html"
	"html/template"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Code is coloured when its page is made, by classes, so that no script is needed in a browser. The
// text of a block is not changed: without the classes it is what was written.

// grammar has what is coloured in a language: comments, texts and words. That is little enough to
// be right without a parser.
type grammar struct {
	comment     string            // begins one that ends with the line; "" for none
	block       [2]string         // start and end of one over several lines
	onlyAtStart bool              // of a comment: only at the start of a word, as in a shell
	texts       []string          // what begins and ends a text; longer ones first
	raw         string            // those of texts in which \ is a character like others
	words       map[string]string // the words, with their class
}

// The classes of coloured parts.
const (
	classComment = "c"
	classText    = "s"
	classWord    = "k"
	classNumber  = "n"
	className    = "v"
)

// wordsOf makes the words of a grammar.
func wordsOf(words string) map[string]string {
	all := map[string]string{}
	for _, word := range strings.Fields(words) {
		all[word] = classWord
	}
	return all
}

var (
	shell = &grammar{comment: "#", onlyAtStart: true, texts: []string{`"`, "'"}, raw: "'",
		words: wordsOf("if then else fi for while until do done case esac in export set")}
	python = &grammar{comment: "#", texts: []string{`"""`, "'''", `"`, "'"},
		words: wordsOf("and as async await break class continue def elif else except False " +
			"finally for from global if import in is lambda None nonlocal not or pass raise " +
			"return True try while with yield")}
	script = &grammar{comment: "//", block: [2]string{"/*", "*/"}, texts: []string{"`", `"`, "'"},
		words: wordsOf("as async await break case catch class const continue default delete do " +
			"else export extends false finally for from function if import in instanceof " +
			"interface let new null of return static switch this throw true try type typeof " +
			"undefined var void while yield")}
	golang = &grammar{comment: "//", block: [2]string{"/*", "*/"}, texts: []string{"`", `"`, "'"},
		raw: "`", words: wordsOf("break case chan const continue default defer else fallthrough " +
			"false for func go goto if import interface iota map nil package range return " +
			"select struct switch true type var")}
	query = &grammar{comment: "--", block: [2]string{"/*", "*/"}, texts: []string{"$$", "'"},
		raw: "'$$", words: wordsOf("ADD ALTER AND AS BEGIN BY CASCADE COMMIT CREATE DATABASE " +
			"DEFAULT DELETE DROP ELSE END EXECUTE EXISTS FOR FROM FUNCTION GRANT IF IN INDEX " +
			"INSERT INTO IS KEY LANGUAGE LIMIT LOGIN NOT NULL ON OR ORDER OWNER PASSWORD " +
			"PRIMARY PUBLIC REFERENCES RETURNING RETURNS REVOKE ROLE ROLLBACK SCHEMA SELECT " +
			"SET TABLE THEN TO TRIGGER TRUE FALSE UNIQUE UPDATE USAGE VALUES VIEW WHEN WHERE " +
			"WITH")}
	data    = &grammar{texts: []string{`"`}, words: wordsOf("true false null")}
	setting = &grammar{comment: "#", onlyAtStart: true, texts: []string{`"""`, `"`, "'"}, raw: "'",
		words: wordsOf("true false null")}
)

// grammars has the grammar of each name of a language.
var grammars = map[string]*grammar{"sh": shell, "bash": shell, "python": python, "py": python,
	"js": script, "ts": script, "mjs": script, "go": golang, "sql": query, "json": data,
	"toml": setting, "yaml": setting, "yml": setting, "conf": setting, "nginx": setting,
	"caddyfile": setting, "ini": setting, "properties": setting}

// highlight returns code as HTML, with classes for the coloured parts. Of a language that is not
// known nothing is.
func highlight(language, code string) template.HTML {
	g := grammars[strings.ToLower(language)]
	if g == nil {
		return template.HTML(html.EscapeString(code))
	}
	var b strings.Builder
	for at := 0; at < len(code); {
		n, class := g.token(code, at)
		text := html.EscapeString(code[at : at+n])
		if class == "" {
			b.WriteString(text)
		} else {
			b.WriteString(`<span class="` + class + `">` + text + "</span>")
		}
		at += n
	}
	return template.HTML(b.String())
}

// token returns the length of what stands at a place, and its class; "" for none.
func (g *grammar) token(code string, at int) (n int, class string) {
	rest := code[at:]
	startsWord := at == 0 || strings.ContainsRune(" \t\n;(", rune(code[at-1]))
	switch {
	case g.comment != "" && strings.HasPrefix(rest, g.comment) && (startsWord || !g.onlyAtStart):
		return until(rest, len(g.comment), "\n", 0), classComment
	case g.block[0] != "" && strings.HasPrefix(rest, g.block[0]):
		return until(rest, len(g.block[0]), g.block[1], len(g.block[1])), classComment
	case g == shell && rest[0] == '$' && len(rest) > 1 && isWord(rune(rest[1])):
		return 1 + wordLength(rest[1:]), className
	}
	for _, quote := range g.texts {
		if strings.HasPrefix(rest, quote) {
			return g.text(rest, quote)
		}
	}
	if n := wordLength(rest); n > 0 {
		class := g.words[rest[:n]]
		if unicode.IsDigit(rune(rest[0])) && g != shell {
			class = classNumber
		}
		return n, class
	}
	_, n = utf8.DecodeRuneInString(rest)
	return n, ""
}

// text returns the length of a text, and its class. In a document of data a text before a colon is
// a name.
func (g *grammar) text(rest, quote string) (n int, class string) {
	n = len(quote)
	for n < len(rest) && !strings.HasPrefix(rest[n:], quote) {
		if rest[n] == '\\' && !strings.Contains(g.raw, quote) && n+1 < len(rest) {
			n++
		}
		if rest[n] == '\n' && len(quote) == 1 && quote != "`" && g != shell {
			return n, classText
		}
		n++
	}
	n = min(n+len(quote), len(rest))
	if g == data && strings.HasPrefix(strings.TrimLeft(rest[n:], " "), ":") {
		return n, className
	}
	return n, classText
}

// until returns the length of a text up to an end that begins at from or later, and so many bytes
// of that end.
func until(text string, from int, end string, take int) int {
	at := strings.Index(text[from:], end)
	if at < 0 {
		return len(text)
	}
	return from + at + take
}

// wordLength returns the length of the word that a text begins with.
func wordLength(text string) int {
	n := strings.IndexFunc(text, func(r rune) bool { return !isWord(r) })
	if n < 0 {
		return len(text)
	}
	return n
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
