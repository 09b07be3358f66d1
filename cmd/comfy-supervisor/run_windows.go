package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
)

// become runs the host and ends as it ends. Ctrl-C reaches both through the console; it is for the host alone.
func (app *application) become(program string, words, environ []string) error {
	signal.Ignore(os.Interrupt)
	host := exec.Command(program, words[1:]...)
	host.Env = environ
	host.Stdin, host.Stdout, host.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := host.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return &exitError{code: ended.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	return nil
}
