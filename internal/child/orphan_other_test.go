//go:build !linux

package child_test

// otherMain does nothing: the tests that need processes of their own run on Linux.
func otherMain() {}
