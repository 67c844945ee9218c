package cli

import (
	"runtime/debug"
	"strings"
	"testing"
)

// The version is never "(devel)": where Go gives none it is made of the revision.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ module, revision, modified, want string }{
		{"v1.2.3", "0123456789abcdef", "true", "v1.2.3"},
		{"v0.0.0-20260101000000-0123456789ab+dirty", "0123456789abcdef", "true",
			"v0.0.0-20260101000000-0123456789ab+dirty"},
		{"(devel)", "0123456789abcdef", "false", "revision-0123456789ab"},
		{"(devel)", "0123456789abcdef", "true", "revision-0123456789ab+dirty"},
		{"", "0123", "false", "revision-0123"},
		{"(devel)", "", "", "development build"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: tt.module},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: tt.revision},
				{Key: "vcs.modified", Value: tt.modified}}}
		if got := newBuildInfo(info).Version; got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}

// A User-Agent is one product, whose version has no blank; tests are development builds.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	if got := UserAgent(); !strings.HasPrefix(got, "millrace/") || strings.Contains(got, " ") {
		t.Errorf("got %q", got)
	}
}
