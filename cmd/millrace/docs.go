package main

import (
	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/docsite"
	"github.com/millrace/millrace/internal/workerapi"
)

// newDocs makes the documentation of this version: of all contracts, also of those that a node does
// not serve. The papers and the OpenAPI documents are files of the binary, so the pages are those
// of the version that answers.
func newDocs(contracts []*contract.Definition) *docsite.Site {
	var apis []docsite.API
	for _, c := range contracts {
		if c.OpenAPI != nil {
			apis = append(apis, docsite.API{Name: c.Name(), Document: c.OpenAPI,
				Source: "internal/contract/" + c.Name() + "/openapi.yaml"})
		}
	}
	apis = append(apis,
		docsite.API{Name: workerapi.Name, Document: workerapi.OpenAPI,
			Source: "internal/workerapi/openapi.yaml"},
		docsite.API{Name: admin.Name, Document: admin.OpenAPI,
			Source: "internal/admin/openapi.yaml"})
	return docsite.New(docsite.Config{Papers: millrace.Papers, APIs: apis, Style: console.Style(),
		Icon: console.Icon(), Version: cli.ReadBuildInfo().Version})
}
