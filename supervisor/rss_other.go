//go:build !linux && !windows

package supervisor

// ownRSS is 0: the resident memory can not be read here without cgo.
func ownRSS() int64 { return 0 }
