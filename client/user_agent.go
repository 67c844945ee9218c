package client

import (
	"runtime/debug"
	"strings"
	"sync"
)

const modulePath = "github.com/millrace/millrace"

// defaultUserAgent is the User-Agent of the client in this program.
var defaultUserAgent = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return userAgent(&debug.BuildInfo{})
	}
	return userAgent(info)
})

// userAgent names the client with the version that a program has of its module. A program that is
// built of a folder, by a replacement or a workspace, has none.
func userAgent(info *debug.BuildInfo) string {
	const name = "millrace-go"
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != modulePath {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if number, ok := strings.CutPrefix(m.Version, "v"); ok {
			return name + "/" + number
		}
	}
	return name
}
