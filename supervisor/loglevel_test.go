package supervisor

import (
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestLinesHaveTheLevelThatTheyOrTheirSurroundingsState(t *testing.T) {
	t.Parallel()
	var known levels
	for _, test := range []struct{ stream, text, level string }{
		{"stdout", "hello", "INFO"},
		{"stdout", "[DEBUG] small", "DEBUG"},
		{"stdout", "   more of it", "DEBUG"},
		{"stdout", "something else", "INFO"},
		{"stderr", "loading", "WARNING"},
		{"stderr", "[DETAIL] of ComfyUI", "DETAIL"},
		{"stderr", "[ERROR] it failed", "ERROR"},
		{"stderr", "Traceback (most recent call last):", "ERROR"},
		{"stderr", "  File \"x.py\", line 3, in f", "ERROR"},
		{"stdout", "meanwhile elsewhere", "INFO"},
		{"stderr", "ValueError: no", "ERROR"},
		{"stderr", "after it", "WARNING"},
		{"stderr", "  | Traceback (most recent call last):", "ERROR"},
		{"stderr", "[2026] is no level", "ERROR"},
		{"stderr", "[LOUD] neither", "WARNING"},
		{streamSupervisor, levelled(levelError, "the worker %s", "ended"), "ERROR"},
		{streamSupervisor, "[CRITICAL]without a space", "INFO"},
	} {
		line := api.LogLine{Stream: test.stream, Line: test.text}
		if level := known.of(line); level != test.level {
			t.Errorf("%s %q has level %s, expected %s", test.stream, test.text, level, test.level)
		}
	}
	other := api.LogLine{Stream: "stderr", Generation: 2, Line: "  of another worker"}
	if level := known.of(other); level != "WARNING" {
		t.Errorf("another worker's line has level %s", level)
	}
}

func TestAFilterKeepsWhatIsImportantEnough(t *testing.T) {
	t.Parallel()
	for name, expected := range map[string]int{"": 3, "debug": 3, "info": 2, "Warn": 1, "ERROR": 1, "critical": 0} {
		least, err := parseLevel(name)
		if err != nil {
			t.Fatal(err)
		}
		wanted, kept := newLevelFilter(least), 0
		for _, text := range []string{"[DEBUG] a", "b", "[ERROR] c"} {
			if line := (api.LogLine{Stream: "stdout", Line: text}); wanted(&line) {
				kept++
			}
		}
		if kept != expected {
			t.Errorf("%q keeps %d lines, expected %d", name, kept, expected)
		}
	}
	_, err := parseLevel("loud")
	if failure := wire.AsError(err); err == nil || failure.Data.Kind != wire.KindBadRequest || !strings.Contains(failure.Message, "detail") {
		t.Errorf("got %v", err)
	}
}
