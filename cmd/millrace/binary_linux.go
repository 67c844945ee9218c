package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseBinary gives back the pages of the binary that only the start has used: the kernel maps 64
// KiB with each page that is touched, and keeps them for as long as there is memory. What is used
// again is mapped again, from the page cache. Mappings that may be written to, or have pages that
// were (as relocations do), stay as they are.
func releaseBinary() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var from, to uintptr // of the mapping that the lines are about; 0 is one that stays
	for line := range strings.Lines(string(mappings)) {
		var begin, end uintptr
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &begin, &end, &mode); n == 3 {
			from, to = 0, 0
			isRead := strings.HasPrefix(mode, "r-")
			if isRead && strings.HasSuffix(strings.TrimSpace(line), " "+path) {
				from, to = begin, end
			}
			continue
		}
		if name, value, _ := strings.Cut(line, ":"); name == "Anonymous" && from > 0 &&
			strings.TrimSpace(value) == "0 kB" {
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from,
				unix.MADV_DONTNEED); errno != 0 {
				return errno
			}
		}
	}
	return nil
}
