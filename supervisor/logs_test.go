package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// openLogs makes logs that end with the test.
func openLogs(t *testing.T) *logs {
	t.Helper()
	opened, err := newLogs(filepath.Join(t.TempDir(), "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.close)
	return opened
}

// tail reads the last lines of a log.
func tail(t *testing.T, l *logs, lines int) []api.LogLine {
	t.Helper()
	got, _, err := l.of("an env").read("an env", lines, func(*api.LogLine) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLogLinesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	l := openLogs(t)
	at := time.Date(2026, 1, 31, 10, 0, 0, 123456000, time.UTC)
	lines := []api.LogLine{
		{Environment: "an env", Session: "abc", Generation: 2, Stream: "stdout", Time: at, Line: "hello  world "},
		{Environment: "an env", Stream: streamSupervisor, Time: at.Add(time.Second), Line: ""},
		{Environment: "an env", Session: "abc", Generation: 3, Stream: "stderr", Time: at.Add(2 * time.Second), Line: "grüß \u2028 \\n"},
	}
	for _, line := range lines {
		l.add(line)
	}
	got := tail(t, l, -1)
	if fmt.Sprint(got) != fmt.Sprint(lines) {
		t.Errorf("got\n%+v, expected\n%+v", got, lines)
	}
	if got := tail(t, l, 1); len(got) != 1 || got[0].Generation != 3 {
		t.Errorf("got %+v", got)
	}
	info, err := os.Stat(l.path("an env"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log has mode %v, %v", info.Mode(), err)
	}
}

func TestALogKeepsTwoFilesOfBoundedSize(t *testing.T) {
	t.Parallel()
	l := openLogs(t)
	text := strings.Repeat("x", 60<<10)
	for i := range 400 { // 24 MiB
		l.add(api.LogLine{Environment: "an env", Stream: "stdout", Time: time.Now(), Line: fmt.Sprintf("%d %s", i, text)})
		if i%10 == 0 {
			l.of("an env").run(func() {}) // let it be written
		}
	}
	got := tail(t, l, -1)
	if len(got) < 100 || !strings.HasPrefix(got[len(got)-1].Line, "399 ") {
		t.Errorf("got %d lines", len(got))
	}
	var total int64
	entries, err := os.ReadDir(l.folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if len(entries) != 2 || total > 2*logFileBytes+logQueueBytes {
		t.Errorf("%d files of %d bytes", len(entries), total)
	}
}

func TestWhatComesFasterThanItIsWrittenIsCountedAndNobodyWaits(t *testing.T) {
	t.Parallel()
	l := openLogs(t)
	held, release := make(chan struct{}), make(chan struct{})
	go l.of("an env").run(func() { close(held); <-release })
	<-held
	for range 100 {
		l.add(api.LogLine{Environment: "an env", Stream: "stdout", Time: time.Now(), Line: strings.Repeat("x", 60<<10)})
	}
	close(release)
	l.of("an env").run(func() {})
	l.add(api.LogLine{Environment: "an env", Stream: "stdout", Time: time.Now(), Line: "last"})
	got := tail(t, l, 2)
	if len(got) != 2 || !strings.Contains(got[0].Line, "lines dropped") || got[1].Line != "last" {
		t.Errorf("got %+v", got)
	}
}

func TestALogThatCanNotBeWrittenSaysHowMuchIsMissingLater(t *testing.T) {
	t.Parallel()
	l := openLogs(t)
	if err := os.Mkdir(l.path("an env"), 0o700); err != nil { // in the way of the file
		t.Fatal(err)
	}
	l.add(api.LogLine{Environment: "an env", Stream: "stdout", Time: time.Now(), Line: "lost"})
	l.of("an env").run(func() {})
	if err := os.Remove(l.path("an env")); err != nil {
		t.Fatal(err)
	}
	l.add(api.LogLine{Environment: "an env", Stream: "stdout", Time: time.Now(), Line: "kept"})
	got := tail(t, l, -1)
	if len(got) != 2 || !strings.Contains(got[0].Line, "1 lines lost") || got[1].Line != "kept" {
		t.Errorf("got %+v", got)
	}
}

func TestFollowersMissNothingAndGetNothingTwice(t *testing.T) {
	t.Parallel()
	l := openLogs(t)
	const lines = 2000
	adding := make(chan struct{})
	half := make(chan struct{})
	go func() {
		defer close(adding)
		for i := range lines {
			l.add(api.LogLine{Environment: "an env", Stream: "stdout", Time: time.Now(), Line: fmt.Sprint(i)})
			if i == lines/2 {
				close(half)
			}
		}
	}()
	<-half
	got := make(chan string, lines)
	kept, stop, err := l.of("an env").read("an env", -1, func(*api.LogLine) bool { return true }, func(line api.LogLine) { got <- line.Line })
	if err != nil {
		t.Fatal(err)
	}
	<-adding
	for i, line := range kept {
		if line.Line != fmt.Sprint(i) {
			t.Fatalf("line %d is %q", i, line.Line)
		}
	}
	for i := len(kept); i < lines; i++ {
		if text := <-got; text != fmt.Sprint(i) {
			t.Fatalf("line %d is %q", i, text)
		}
	}
	stop()
}
