package child

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Apply sets the limits of this process, which programs that it starts inherit. A limit is never
// above the one that the process has already. After an error some of the limits may be set, so the
// process must end.
func (l Limits) Apply() error {
	for _, l := range []struct {
		resource int
		limit    int64
	}{
		{unix.RLIMIT_DATA, l.Memory}, {unix.RLIMIT_CPU, int64((l.CPU + time.Second - 1) / time.Second)},
		{unix.RLIMIT_FSIZE, l.FileSize}, {unix.RLIMIT_NOFILE, l.OpenFiles},
	} {
		if l.limit == 0 {
			continue
		}
		if err := lower(l.resource, uint64(l.limit)); err != nil {
			return err
		}
	}
	return lower(unix.RLIMIT_CORE, 0)
}

// lower sets one limit, to what it is already if that is less.
func lower(resource int, limit uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	limit = min(limit, now.Max)
	return os.NewSyscallError("setrlimit",
		unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}))
}
