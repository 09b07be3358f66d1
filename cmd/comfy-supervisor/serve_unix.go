//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// ignoreBrokenPipes keeps a daemon alive whose log goes to a pipe that nobody reads any more.
func ignoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// closeOnExec keeps a descriptor from the processes that this one starts.
func closeOnExec(file *os.File) { syscall.CloseOnExec(int(file.Fd())) }
