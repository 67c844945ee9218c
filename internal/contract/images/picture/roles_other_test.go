//go:build !linux

package picture

// roles are what this test binary does when a test starts it as a child: nothing here.
var roles = map[string]func(args []string) int{}
