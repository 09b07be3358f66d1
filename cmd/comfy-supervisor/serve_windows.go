package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// ignoreBrokenPipes has nothing to do: a broken pipe is an error here and no signal.
func ignoreBrokenPipes() {}

// closeOnExec keeps a handle from the processes that this one starts. It stays inherited if the system refuses, which
// harms nobody: it is closed once it was used.
func closeOnExec(file *os.File) {
	_ = windows.SetHandleInformation(windows.Handle(file.Fd()), windows.HANDLE_FLAG_INHERIT, 0)
}
