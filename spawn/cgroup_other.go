//go:build !linux

package spawn

import "errors"

func createCgroup(string) (string, error) {
	return "", errors.New("this system has no control groups")
}

func expectedCgroup(string) string { return "" }
func removeCgroup(string) error    { return nil }

// HoldMemory fails: there are no control groups here.
func HoldMemory(string, int64, int64) error {
	return errors.New("this system has no control groups")
}
