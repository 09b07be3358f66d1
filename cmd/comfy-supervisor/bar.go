package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// bar draws a call's progress on one line of a terminal; elsewhere it draws nothing.
type bar struct {
	mu     sync.Mutex
	output io.Writer // nil: not a terminal
	width  int
	drawn  bool
}

// newBar makes a bar on standard error, so that the result on standard output stays clean.
func newBar(app *application) *bar {
	file, ok := app.stderr.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return &bar{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	return &bar{output: file, width: width}
}

// show draws a state of progress.
func (b *bar) show(progress api.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.output == nil {
		return
	}
	b.drawn = true
	fmt.Fprintf(b.output, "\r\x1b[K%s", drawBar(progress, b.width-1))
}

// clear removes the bar.
func (b *bar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		fmt.Fprint(b.output, "\r\x1b[K")
		b.drawn = false
	}
}

// drawBar is "[#####-----] 5/10 text" in a width.
func drawBar(progress api.Progress, width int) string {
	label := progress.Text
	if progress.Max > 0 {
		label = strings.TrimSpace(fmt.Sprintf("%g/%g %s", progress.Value, progress.Max, progress.Text))
	}
	const cells = 30
	if progress.Max > 0 && width > cells+10 {
		filled := int(min(1, max(0, progress.Value/progress.Max)) * cells)
		label = "[" + strings.Repeat("#", filled) + strings.Repeat("-", cells-filled) + "] " + label
	}
	if letters := []rune(label); len(letters) > width {
		label = string(letters[:width])
	}
	return label
}
