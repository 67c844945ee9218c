package main

import (
	"bytes"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// A bill of materials is read from the binary and not from go.mod: it names what is linked for this
// platform, and nothing that only tests or other platforms need.

// writeSBOMs writes what each binary is made of, as Go has written it into the binary.
func (r *release) writeSBOMs() error {
	for _, b := range r.built {
		bom := r.sbom(b)
		var text bytes.Buffer
		encoder := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON)
		if err := encoder.SetPretty(true).Encode(bom); err != nil {
			return err
		}
		if err := r.write(r.name(b.platform, ".cdx.json"), text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// sbom is a bill of materials without a serial number, which would be another one each time.
func (r *release) sbom(b built) *cyclonedx.BOM {
	program := component(&b.info.Main, cyclonedx.ComponentTypeApplication)
	program.Name = "millrace"
	parts := []cyclonedx.Component{component(&debug.Module{Path: "std",
		Version: strings.TrimPrefix(b.info.GoVersion, "go")}, cyclonedx.ComponentTypeLibrary)}
	for _, m := range b.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, component(m, cyclonedx.ComponentTypeLibrary))
	}
	refs := make([]string, len(parts))
	for i := range parts {
		refs[i] = parts[i].BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &program}
	bom.Components = &parts
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	return bom
}

// component is a module. Its sum is the one of go.sum.
func component(m *debug.Module, kind cyclonedx.ComponentType) cyclonedx.Component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{BOMRef: url, Type: kind, Name: m.Path, Version: m.Version,
		PackageURL: url}
	if m.Sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}
