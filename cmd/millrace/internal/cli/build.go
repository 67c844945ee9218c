package cli

import "runtime/debug"

// BuildInfo says what this binary is made of.
type BuildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // made from a work tree with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	SQLite   string `json:"sqlite"` // of the driver's module
	Postgres string `json:"postgres"`
}

// ReadBuildInfo returns the build information that the Go toolchain has put into this binary. The
// version is developmentBuild where it has put in none, as with `go run`.
func ReadBuildInfo() BuildInfo {
	b := BuildInfo{Version: developmentBuild}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	return newBuildInfo(info)
}

// developmentBuild is the version of a binary that has no version and no revision.
const developmentBuild = "development build"

// newBuildInfo picks what users want to know from the information of the toolchain.
func newBuildInfo(info *debug.BuildInfo) BuildInfo {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	b := BuildInfo{Go: info.GoVersion, Revision: settings["vcs.revision"],
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
func (b *BuildInfo) name(module string) string {
	if module != "" && module != "(devel)" {
		return module
	}
	if b.Revision == "" {
		return developmentBuild
	}
	name := "revision-" + b.Revision[:min(len(b.Revision), 12)]
	if b.Modified {
		name += "+dirty"
	}
	return name
}
