package client

import (
	"runtime/debug"
	"testing"
)

// TestUserAgent: the User-Agent has the version that a program has of this module, if it has one.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	own := func(version string) *debug.Module {
		return &debug.Module{Path: modulePath, Version: version}
	}
	folder := own("v1.2.3")
	folder.Replace = &debug.Module{Path: "../millrace"}
	fork := own("v1.2.3")
	fork.Replace = &debug.Module{Path: "example.org/fork", Version: "v1.2.4"}
	for _, c := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{}, "millrace-go"},
		{debug.BuildInfo{Main: *own("(devel)")}, "millrace-go"},
		{debug.BuildInfo{Main: *own("v1.2.3-rc.1+dirty")}, "millrace-go/1.2.3-rc.1+dirty"},
		{debug.BuildInfo{Main: debug.Module{Path: "example.org/mine", Version: "v7.0.0"},
			Deps: []*debug.Module{{Path: modulePath + "s", Version: "v6.0.0"}, own("v1.2.3")}},
			"millrace-go/1.2.3"},
		{debug.BuildInfo{Deps: []*debug.Module{folder}}, "millrace-go"},
		{debug.BuildInfo{Deps: []*debug.Module{fork}}, "millrace-go/1.2.4"},
	} {
		if got := userAgent(&c.info); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.info, got, c.want)
		}
	}
	if c, err := New(Config{BaseURL: "http://127.0.0.1:1"}); err != nil ||
		c.userAgent != defaultUserAgent() {
		t.Errorf("a client without a User-Agent sends %q, %v", c.userAgent, err)
	}
}
