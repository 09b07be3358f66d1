//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// become replaces this process by the host: terminal, signals and exit code are its own.
func (app *application) become(program string, words, environ []string) error {
	return fmt.Errorf("starting %s: %w", program, syscall.Exec(program, words, environ))
}
