// Package docsite serves the documents of this version under /docs, as pages that work without
// JavaScript and load nothing from elsewhere (decision 0108).
//
//	docs/relay.md ─▶ goldmark ─▶ headings, links, tabs, coloured code ─▶ page   /docs/relay
//	                     │                                               text   /docs/relay.md
//	                     └──────▶ sections ─▶ index                ─▶ results   /docs/search?q=…
//	openapi.yaml  ─▶ operations, schemas, examples                 ─▶ page      /docs/api/relay
//	client/doc.go                                                  ─▶ source    /docs/source/…
//
// The same files are read in the repository, so a link of a document is the path of a file. The
// site finds the page of that file; what a release does not carry is shown as text. docs/README.md
// is the first page, and its lists are the navigation of all pages.
//
// A page is made when it is asked for first, and kept.
package docsite
