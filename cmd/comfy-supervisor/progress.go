package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
)

// progress shows the events of a build: on a terminal one line an environment that is rewritten in place, below
// the lines that stay; elsewhere a plain log; or JSON lines.
type progress struct {
	mutex    sync.Mutex
	out      io.Writer
	json     bool
	quiet    bool
	terminal bool
	width    int
	order    []string             // environments with a live line, in the order in which they started
	live     map[string]string    // their text
	detail   map[string]time.Time // when a log had an environment's last detail
	drawn    int                  // live lines on the screen
}

func newProgress(app *application, asJSON, quiet bool) *progress {
	p := &progress{out: app.stdout, json: asJSON, quiet: quiet, live: map[string]string{}, detail: map[string]time.Time{}}
	if file, ok := app.stdout.(*os.File); ok && !asJSON && !quiet && term.IsTerminal(int(file.Fd())) {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 20 {
			p.terminal, p.width = true, width
		}
	}
	return p
}

// event shows one event. It may be called from several goroutines.
func (p *progress) event(event envbuild.Event) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch {
	case p.json:
		_ = json.NewEncoder(p.out).Encode(event) // the result follows by another way; a closed pipe ends the process
	case p.quiet:
		if event.Kind == envbuild.EventFailed {
			fmt.Fprintln(p.out, sentence(event))
		}
	case p.terminal:
		p.draw(event)
	case event.Kind == envbuild.EventStep && isDetail(event.Text) && event.Time.Sub(p.detail[event.Environment]) < detailEvery:
		// a log needs no line for each file
	default:
		if event.Kind == envbuild.EventStep && isDetail(event.Text) {
			p.detail[event.Environment] = event.Time
		}
		fmt.Fprintln(p.out, sentence(event))
	}
}

// detailEvery is how often a log without a terminal repeats how far downloads are.
const detailEvery = 5 * time.Second

// isDetail tells steps that follow each other quickly.
func isDetail(text string) bool {
	return strings.HasPrefix(text, "downloading, ") || strings.HasPrefix(text, "compil")
}

// sentence is an event as a line of a log. Of what is no environment yet, the text says what it is about.
func sentence(event envbuild.Event) string {
	text := event.Text
	if event.Kind == envbuild.EventWhy {
		text = "build needed: " + text
	}
	if event.Environment == "" {
		return text
	}
	return event.Environment + ": " + text
}

// draw updates the terminal.
func (p *progress) draw(event envbuild.Event) {
	var text strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\x1b[J", p.drawn)
	}
	switch event.Kind {
	case envbuild.EventStep, envbuild.EventWaiting:
		if !slices.Contains(p.order, event.Environment) {
			p.order = append(p.order, event.Environment)
		}
		p.live[event.Environment] = event.Text
	default:
		text.WriteString(sentence(event) + "\n")
		if event.Kind == envbuild.EventBuilt || event.Kind == envbuild.EventFailed || event.Kind == envbuild.EventUnchanged {
			p.order = slices.DeleteFunc(p.order, func(name string) bool { return name == event.Environment })
			delete(p.live, event.Environment)
		}
	}
	for _, name := range p.order {
		line := []rune(name + ": " + p.live[name])
		if len(line) >= p.width {
			line = append(line[:p.width-2], '…')
		}
		text.WriteString(string(line) + "\n")
	}
	p.drawn = len(p.order)
	fmt.Fprint(p.out, text.String())
}

// close removes live lines.
func (p *progress) close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.drawn > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}
