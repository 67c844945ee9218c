// Package millrace holds the documents of this version, which package docsite shows under /docs.
package millrace

import "embed"

// Papers are the documents, under their paths in the repository, with what they link to: pictures,
// and the sources of examples. What is in a module of its own (bench, deploy) cannot be among them.
//
//go:embed README.md CHANGELOG.md ARCHITECTURE.md LICENSE
//go:embed docs/*.md docs/contracts/*.md docs/decisions/*.md docs/reference/*.md
//go:embed docs/img/*.svg docs/console.png docs/thumbs.sh
//go:embed clients/python/README.md clients/typescript/README.md
//go:embed client/doc.go client/taskflow_example_test.go client/pgtx/*.go
var Papers embed.FS
