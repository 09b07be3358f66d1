//go:build !linux && !windows

package supervisor

// ownRSS is 0: the resident memory can not be read here without cgo.
func ownRSS() int64 { return 0 }

// sharedRSS is 0: what of a process's memory is shared can not be read here.
func sharedRSS(int) int64 { return 0 }
