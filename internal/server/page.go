package server

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/httpapi"
)

// Page is what a node shows a browser at "/", in addition to its version and its contracts with
// their addresses.
type Page struct {
	Attrs []Attr
	// Console is the path of the console; empty where it is not served.
	Console string
	// Commands returns example commands for a node that is reached at url.
	Commands func(url string) []string
}

// Attr is one line about a node.
type Attr struct{ Name, Text string }

// pageEntry is a contract or another API as the page shows it.
type pageEntry struct {
	Name     string
	Prefixes []string
	Listen   string // its own address; empty means the common one
	OpenAPI  string // the path of its OpenAPI document; empty means none
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// pagePolicy allows the page its own styles and nothing else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; " +
	"base-uri 'none'; form-action 'none'"

// page serves the paths that no other handler of the common listener covers: a browser that asks
// for "/" gets the page, and every other request a 404.
func (s *Server) page(entries []pageEntry) httpapi.PrefixHandler {
	return httpapi.PrefixHandler{Name: "page", Prefixes: []string{"/"},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			readOnly := r.Method == http.MethodGet || r.Method == http.MethodHead
			if r.URL.Path != "/" || !readOnly || !httpapi.AcceptsHTML(r) {
				httpapi.NotFound(w)
				return
			}
			var text bytes.Buffer
			err := pageTemplate.Execute(&text, map[string]any{
				"Version": s.config.Version,
				"Attrs":   s.config.Page.Attrs,
				"Tries":   s.config.Page.Commands(s.baseURL(r)),
				"Served":  entries,
				"Console": s.config.Page.Console,
				"Metrics": s.config.Metrics != nil,
				"Docs":    s.docsLink(),
			})
			if err != nil {
				s.log.Error("the page at / cannot be made", "error_message", err)
				http.Error(w, "the page cannot be made", http.StatusInternalServerError)
				return
			}
			h := w.Header()
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Cache-Control", "no-store")
			h.Set("Vary", "Accept")
			_, _ = w.Write(text.Bytes())
		})}
}

// docsLink returns the path of the documentation; "" where it is not served.
func (s *Server) docsLink() string {
	if !s.servesDocs() {
		return ""
	}
	return docsPath
}

// baseURL returns the node's URL as the caller knows it. People copy commands with it into a shell,
// so a Host header with characters that no name or port has is replaced by the node's address.
func (s *Server) baseURL(r *http.Request) string {
	if r.Host == "" || strings.ContainsFunc(r.Host, invalidInHost) {
		return s.URLs()[0]
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// invalidInHost reports a character that no host name, address or port contains.
func invalidInHost(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
		!strings.ContainsRune(".:-[]", c)
}
