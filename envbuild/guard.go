package envbuild

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// A guard is a process of our own binary between a build and the installer it runs. It ends the installer's
// whole process tree, compilers included, when the build is cancelled or its process is gone, killed or not:
// both reach the guard as the end of its standard input. As long as anything of the tree may still write into
// a half-built revision, the guard holds a lock, so the next build waits for it.

// guardOrder is the one line that a guard reads.
type guardOrder struct {
	Arguments []string `json:"arguments"`
	Environ   []string `json:"environ"`
	Directory string   `json:"directory"`
	Lock      string   `json:"lock"`
}

// GuardCommand is the hidden command line argument under which a program must call ServeGuard.
const GuardCommand = "build-guard"

// guardPatience is how long a cancelled build waits for its guard to report that the tree is gone.
const guardPatience = 10 * time.Second

// guardProgram is the command line of a guard: this program, also after its file was replaced or removed.
func guardProgram() ([]string, error) {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", GuardCommand}, nil
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's own file: %w", err)
	}
	return []string{program, GuardCommand}, nil
}

// guarded runs a command under a guard and returns when nothing of it is left. Its output goes to output, line
// by line. A cancelled context ends the tree.
func guarded(ctx context.Context, program []string, order guardOrder, output func(line string)) error {
	line, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("encoding a guard's order: %w", err)
	}
	command := exec.Command(program[0], program[1:]...)
	command.Env = order.Environ
	command.Dir = order.Directory
	detach(command)
	stdin, err := command.StdinPipe()
	if err != nil {
		return fmt.Errorf("opening a guard's input: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("opening a guard's output: %w", err)
	}
	command.Stdout, command.Stderr = writer, writer
	if err := command.Start(); err != nil {
		reader.Close()
		writer.Close()
		return fmt.Errorf("starting the guard of %s: %w", filepath.Base(order.Arguments[0]), err)
	}
	writer.Close()
	var lines sync.WaitGroup
	lines.Go(func() {
		defer reader.Close()
		scan := bufio.NewReaderSize(reader, 1<<16)
		for {
			text, err := scan.ReadString('\n')
			if text != "" {
				output(trimLine(text))
			}
			if err != nil {
				return
			}
		}
	})
	// Closing the input ends the tree; the guard's own end follows. Should it not, it is killed, and with it
	// what the operating system ties to it.
	var killer *time.Timer
	var once sync.Once
	end := func() { once.Do(func() { stdin.Close() }) }
	stop := context.AfterFunc(ctx, func() {
		killer = time.AfterFunc(guardPatience, func() { command.Process.Kill() })
		end()
	})
	_, err = stdin.Write(append(line, '\n'))
	waited := command.Wait()
	if !stop() && killer != nil {
		killer.Stop()
	}
	end()
	lines.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if waited != nil {
		return waited
	}
	if err != nil {
		return fmt.Errorf("ordering the guard of %s: %w", filepath.Base(order.Arguments[0]), err)
	}
	return nil
}

// trimLine drops the end of a line, and what a terminal would have overwritten in it.
func trimLine(text string) string {
	for len(text) > 0 && (text[len(text)-1] == '\n' || text[len(text)-1] == '\r') {
		text = text[:len(text)-1]
	}
	return text
}

// ServeGuard is the body of the hidden command GuardCommand. It returns the exit code of the program that it
// was ordered to run.
func ServeGuard(input io.Reader) int {
	reader := bufio.NewReader(input)
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return guardFailed("reading the order", err)
	}
	var order guardOrder
	if err := json.Unmarshal(line, &order); err != nil || len(order.Arguments) == 0 {
		return guardFailed("reading the order", errors.Join(err, errors.New("no command in it")))
	}
	if order.Lock != "" {
		lock := flock.New(order.Lock, flock.SetPermissions(lockMode))
		if err := lock.Lock(); err != nil {
			return guardFailed("locking "+order.Lock, err)
		}
		defer lock.Close()
	}
	tree, err := prepareTree()
	if err != nil {
		return guardFailed("preparing to own processes", err)
	}
	command := exec.Command(order.Arguments[0], order.Arguments[1:]...)
	command.Env, command.Dir = order.Environ, order.Directory
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	tree.configure(command)
	if err := tree.start(command); err != nil {
		return guardFailed("starting "+order.Arguments[0], err)
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, reader)
		tree.kill()
	}()
	_ = command.Wait() // the state says it
	tree.sweep()
	return exitCode(command.ProcessState)
}

// guardFailedCode tells a guard's own failure from the program's.
const guardFailedCode = 125

func guardFailed(doing string, err error) int {
	fmt.Fprintf(os.Stderr, "comfy-supervisor %s: %s: %v\n", GuardCommand, doing, err)
	return guardFailedCode
}
