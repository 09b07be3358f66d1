//go:build unix

package envbuild

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// otherOwner names the user whom a path belongs to, "" where that is this process's own.
func otherOwner(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(status.Uid) == os.Geteuid() {
		return ""
	}
	number := strconv.FormatUint(uint64(status.Uid), 10)
	if found, err := user.LookupId(number); err == nil {
		return fmt.Sprintf("the user %s", found.Username)
	}
	return "the user " + number
}
