package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildInfo says what this binary is made of.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // made from a work tree with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	SQLite   string `json:"sqlite"` // of the driver's module
	Postgres string `json:"postgres"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	return newBuildInfo(info)
}

func newBuildInfo(info *debug.BuildInfo) buildInfo {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	b := buildInfo{Go: info.GoVersion, Revision: settings["vcs.revision"],
		Time: settings["vcs.time"], Modified: settings["vcs.modified"] == "true"}
	b.Version = b.name(info.Main.Version)
	b.Platform = settings["GOOS"] + "/" + settings["GOARCH"]
	for _, d := range info.Deps {
		switch d.Path {
		case "modernc.org/sqlite":
			b.SQLite = d.Path + " " + d.Version
		case "github.com/jackc/pgx/v5":
			b.Postgres = d.Path + " " + d.Version
		}
	}
	return b
}

// name is the version of the module or, where Go gave it none, one made of the revision that it
// was built from.
func (b *buildInfo) name(module string) string {
	if module != "" && module != "(devel)" {
		return module
	}
	if b.Revision == "" {
		return "unknown" // as by `go run`
	}
	name := "revision-" + b.Revision[:min(len(b.Revision), 12)]
	if b.Modified {
		name += "+dirty"
	}
	return name
}

func versionCommand(p process) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print what this binary is made of",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := readBuildInfo()
			if asJSON {
				return withCode(exitFailed, json.NewEncoder(p.stdout).Encode(b))
			}
			fmt.Fprintf(p.stdout, "millrace %s\n", b.Version)
			for _, line := range [][2]string{{"revision", b.Revision}, {"time", b.Time},
				{"go", b.Go},
				{"platform", b.Platform}, {"sqlite", b.SQLite}, {"postgres", b.Postgres}} {
				if line[1] != "" {
					fmt.Fprintf(p.stdout, "%-9s %s\n", line[0], line[1])
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
