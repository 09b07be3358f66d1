// Package fakecard builds and drives a card that exists only as a shared file: a libnvidia-ml.so.1 for whoever reads
// NVML, and calls for processes that take and return bytes of it. A dead process's bytes come back, as a driver gives
// them back. It needs a C compiler and Linux, and is for tests only.
//
// The C sources are in c/; fakecard.py is the same for Python processes.
package fakecard

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed c/*.c c/*.h
var sources embed.FS

// Python is the source of the module that Python processes use to take and return bytes.
//
//go:embed fakecard.py
var Python []byte

// Library is a built fake: the library to load and the program that changes and holds cards.
type Library struct {
	Path string // libnvidia-ml.so.1
	Tool string
}

// Build compiles the fake into a folder. Functions named in without are left out of the library, as an older driver
// would lack them. The compiler is $CC, or cc.
func Build(folder string, without ...string) (*Library, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for the fake card: %w", err)
	}
	entries, err := sources.ReadDir("c")
	if err != nil {
		return nil, fmt.Errorf("reading the fake card's sources: %w", err)
	}
	for _, entry := range entries {
		text, err := sources.ReadFile("c/" + entry.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, entry.Name()), text, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("laying out the fake card's %s: %w", entry.Name(), err)
		}
	}
	library := &Library{Path: filepath.Join(folder, "libnvidia-ml.so.1"), Tool: filepath.Join(folder, "fakecard")}
	shared := []string{"-shared", "-fPIC", "-o", library.Path, "fakecard.c", "nvml.c"}
	for _, function := range without {
		shared = append(shared, "-DWITHOUT_"+function)
	}
	for _, arguments := range [][]string{shared, {"-o", library.Tool, "fakecard.c", "tool.c"}} {
		if err := compile(folder, arguments); err != nil {
			return nil, err
		}
	}
	return library, nil
}

func compile(folder string, arguments []string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	command := exec.Command(compiler, append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"}, arguments...)...)
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building the fake card with %s (a C compiler is needed; set CC to use another): %w\n%s", compiler, err, output)
	}
	return nil
}

// Spec is one card as it is made; sizes in bytes.
type Spec struct {
	Name   string
	Total  uint64
	Driver uint64 // kept by the driver
	// ProcessLocal: each process sees only its own bytes as taken and is never refused, as under WDDM.
	ProcessLocal bool
	// InstanceOf makes this a MIG instance of the card with that number, which counts from one; 0: a card.
	InstanceOf int
}

// Card is a made set of cards.
type Card struct {
	File    string
	library *Library
}

// Create makes a file with cards, or replaces it.
func (l *Library) Create(file string, specs ...Spec) (*Card, error) {
	arguments := []string{"create"}
	for _, spec := range specs {
		text := fmt.Sprintf("%s:%d:%d", spec.Name, spec.Total, spec.Driver)
		if spec.ProcessLocal {
			text += ":local"
		}
		if spec.InstanceOf > 0 {
			text += ":mig=" + strconv.Itoa(spec.InstanceOf-1)
		}
		arguments = append(arguments, text)
	}
	card := &Card{file, l}
	return card, card.run(arguments...)
}

// Variable is the environment variable, with its value, that tells processes where the cards are.
func (c *Card) Variable() string { return "FAKECARD_FILE=" + c.File }

func (c *Card) run(arguments ...string) error {
	command := exec.Command(c.library.Tool, arguments...)
	command.Env = append(os.Environ(), c.Variable())
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("fakecard %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(output))
	}
	return nil
}

// Foreign sets how many bytes of a card are held in nobody's name.
func (c *Card) Foreign(card int, bytes uint64) error {
	return c.run("foreign", strconv.Itoa(card), strconv.FormatUint(bytes, 10))
}

// Lose makes a card fall off the bus; Restore puts it back.
func (c *Card) Lose(card int) error { return c.run("lose", strconv.Itoa(card)) }

// Restore puts a lost card back.
func (c *Card) Restore(card int) error { return c.run("restore", strconv.Itoa(card)) }

// Fail makes every call of an NVML function fail with a code from now on, in every process.
func (c *Card) Fail(function string, code int) error {
	return c.run("fault", function, strconv.Itoa(code))
}

// Hang makes every call of an NVML function never return from now on, in every process.
func (c *Card) Hang(function string) error { return c.run("fault", function, "hang") }

// Clear ends a fault.
func (c *Card) Clear() error { return c.run("clear") }

// Holder is a process of its own that holds bytes of a card until it ends.
type Holder struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
}

// ErrOutOfMemory: the card has not that many bytes left.
var ErrOutOfMemory = errors.New("the fake card is out of memory")

// Hold starts a holder. End it with Close or Kill.
func (c *Card) Hold() (*Holder, error) {
	command := exec.Command(c.library.Tool, "hold")
	command.Env = append(os.Environ(), c.Variable())
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a holder of a fake card: %w", err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a holder of a fake card: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting a holder of a fake card: %w", err)
	}
	return &Holder{command, input, bufio.NewReader(output)}, nil
}

// PID is the holder's process.
func (h *Holder) PID() int { return h.command.Process.Pid }

// Take takes bytes of a card: all of them, or ErrOutOfMemory.
func (h *Holder) Take(card int, bytes uint64) error {
	_, err := h.ask(fmt.Sprintf("take %d %d", card, bytes))
	return err
}

// Return gives bytes of a card back.
func (h *Holder) Return(card int, bytes uint64) error {
	_, err := h.ask(fmt.Sprintf("return %d %d", card, bytes))
	return err
}

// Free is what the holder reads as a card's free and total bytes, as cuMemGetInfo does.
func (h *Holder) Free(card int) (free, total uint64, err error) {
	figures, err := h.ask(fmt.Sprintf("free %d", card))
	if err == nil && len(figures) != 2 {
		err = fmt.Errorf("free of card %d: %d figures, want two", card, len(figures))
	}
	if err != nil {
		return 0, 0, err
	}
	return figures[0], figures[1], nil
}

// Overcommitted is the most that was ever taken beyond what a process-local card has.
func (h *Holder) Overcommitted(card int) (uint64, error) {
	figures, err := h.ask(fmt.Sprintf("over %d", card))
	if err == nil && len(figures) != 1 {
		err = fmt.Errorf("overcommitment of card %d: %d figures, want one", card, len(figures))
	}
	if err != nil {
		return 0, err
	}
	return figures[0], nil
}

func (h *Holder) ask(question string) (figures []uint64, err error) {
	if _, err := fmt.Fprintln(h.input, question); err != nil {
		return nil, fmt.Errorf("%s: %w", question, err)
	}
	line, err := h.output.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s: reading the answer: %w", question, err)
	}
	words := strings.Fields(line)
	if len(words) == 2 && words[0] == "error" && words[1] == "2" {
		return nil, fmt.Errorf("%s: %w", question, ErrOutOfMemory)
	}
	if len(words) == 0 || words[0] != "ok" {
		return nil, fmt.Errorf("%s: %s", question, strings.TrimSpace(line))
	}
	for _, word := range words[1:] {
		figure, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", question, err)
		}
		figures = append(figures, figure)
	}
	return figures, nil
}

// Close lets the holder end by itself and waits for it.
func (h *Holder) Close() error {
	_ = h.input.Close() // the end of its input is its end
	return h.command.Wait()
}

// Kill ends the holder at once and waits for it.
func (h *Holder) Kill() error {
	if err := h.command.Process.Kill(); err != nil {
		return fmt.Errorf("killing a holder of a fake card: %w", err)
	}
	_ = h.input.Close()
	var killed *exec.ExitError
	if err := h.command.Wait(); err != nil && !errors.As(err, &killed) {
		return fmt.Errorf("waiting for a killed holder of a fake card: %w", err)
	}
	return nil
}
