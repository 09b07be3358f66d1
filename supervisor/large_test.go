//go:build unix

package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

func TestContractsOfAnySizeArrive(t *testing.T) {
	options := newTestOptions(t)
	for name, nodes := range map[string]int{"some": 10, "many": 600, "plenty": 12000} {
		folder := t.TempDir()
		source := fmt.Sprintf(`
class Node:
    INPUT_TYPES = classmethod(lambda cls: {"required": {"x": ("INT", {"default": 1, "tooltip": "x" * 100})}})
    RETURN_TYPES = ("INT",)
    FUNCTION = "run"

    def run(self, x):
        return (x,)


NODE_CLASS_MAPPINGS = {f"Node{i}": Node for i in range(%d)}
`, nodes)
		if err := os.WriteFile(filepath.Join(folder, "__init__.py"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		environment := options.Environments[0]
		environment.Name, environment.PackDirectory, environment.NodesDirectory = name, folder, folder
		options.Environments = append(options.Environments, environment)
	}
	daemon := startDaemon(t, options)
	client := daemon.connect()
	for name, expected := range map[string]int{"some": 10, "many": 600, "plenty": 12000} {
		result, err := client.Nodes(testContext(t), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var contracts []struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(result.Nodes, &contracts); err != nil || len(contracts) != expected {
			t.Errorf("%s: %d nodes, %v", name, len(contracts), err)
		}
		t.Logf("%s: %d bytes", name, len(result.Nodes))
	}
	eventually(t, "the return of all memory files", func() bool { return daemon.daemon.files.Usage().Files == 0 })
	status, err := client.Status(testContext(t), api.StatusParams{}) // 12610 names of nodes
	if err != nil || len(status.Workers) != 3 {
		t.Errorf("status: %v", err)
	}
}

func TestAnAnswerThatFitsIntoNoMessageIsAnErrorAndNotSilence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size         int
		inBody, fail bool
	}{
		"small": {100, false, false}, "large": {300 << 10, true, false}, "huge": {2 << 20, false, true},
	} {
		var answers []*wire.Message
		var bodies [][]byte
		answerLarge("status", func(answer *wire.Message, body []byte) error {
			if _, err := wire.EncodeMessage(&wire.Message{ID: 1, Result: answer.Result, Error: answer.Error}, body); err != nil {
				return err
			}
			answers, bodies = append(answers, answer), append(bodies, body)
			return nil
		}, json.RawMessage(`"`+strings.Repeat("x", test.size)+`"`))
		if len(answers) != 1 || (answers[0].Error != nil) != test.fail || (len(bodies[0]) > 0) != test.inBody {
			t.Errorf("%s: got %d answers, error %v, %d bytes of body", name, len(answers), answers[0].Error, len(bodies[0]))
		}
	}
}

func TestAnErrorCarriesAsManyOfTheLastLinesAsFit(t *testing.T) {
	t.Parallel()
	lines := make([]string, 40)
	for i := range lines {
		lines[i] = fmt.Sprint(i, strings.Repeat("\x01", 4000)) // each six times as long as JSON
	}
	kept := lastLines(lines)
	encoded, err := json.Marshal(kept)
	if err != nil || len(kept) == 0 || len(encoded) > storyBytes+1024 || kept[len(kept)-1] != lines[39] {
		t.Errorf("kept %d lines, %d bytes, %v", len(kept), len(encoded), err)
	}
	if kept := lastLines([]string{"a", "b"}); len(kept) != 2 {
		t.Errorf("kept %q", kept)
	}
}

func TestAWorkerThatWritesRubbishAndDiesHasItsStoryTold(t *testing.T) {
	client := startDaemon(t, newTestOptions(t)).connect()
	mustCall(t, client, "Speak", map[string]any{"text": strings.Repeat("\x01\x02", 30<<10), "stream": "stderr", "times": 50})
	_, err := client.Call(testContext(t), api.Call{Environment: "pack", Node: "Die"})
	failure := wireError(t, err, wire.KindWorkerDied)
	if !strings.Contains(strings.Join(failure.Data.Stderr, "\n"), "about to die") {
		t.Errorf("got %q", failure.Data.Stderr)
	}
}

func TestAllOfALongLogIsShownToAClientThatReadsSlowly(t *testing.T) {
	daemon := startDaemon(t, newTestOptions(t))
	client := daemon.connect()
	const lines, length = 3000, 5000 // 15 MB: more than may wait for one client
	text := strings.Repeat("x", length)
	for batch := range 30 {
		for i := range lines / 30 {
			daemon.daemon.logs.add(api.LogLine{Environment: "pack", Stream: "stdout", Time: time.Now(), Line: fmt.Sprint(batch*lines/30+i, " ", text)})
		}
		daemon.daemon.logs.of("pack").run(func() {}) // let it be written
	}
	expected := 0
	err := client.Logs(testContext(t), api.LogsParams{Environment: "pack", Lines: lines}, func(line api.LogLine) {
		if expected%500 == 0 { // one that reads slowly, now and then
			_, _ = os.ReadDir("/proc")
		}
		if !strings.HasPrefix(line.Line, fmt.Sprint(expected, " ")) {
			t.Errorf("line %d is %.20q", expected, line.Line)
		}
		expected++
	})
	if err != nil || expected != lines {
		t.Errorf("%d of %d lines, %v", expected, lines, err)
	}
}
