package envbuild

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/testdata/processtest"
)

// usages are the store's revisions by folder.
func (m *machine) usages(keep time.Duration) map[string]Usage {
	m.t.Helper()
	list, err := m.store().Usages(m.t.Context(), keep)
	if err != nil {
		m.t.Fatal(err)
	}
	found := map[string]Usage{}
	for _, usage := range list {
		found[usage.Revision] = usage
	}
	return found
}

// age lets a revision's stamp say that it was built long ago.
func age(t *testing.T, revision string) {
	t.Helper()
	mark, err := readStamp(revision)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(revision, stampName)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, strings.ReplaceAll(string(content), mark.BuiltAt.Format(time.RFC3339Nano), "2020-01-01T00:00:00Z"))
}

func TestOnlyWhatNoPackCouldWantIsCollected(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, version := range []string{"1.0", "2.0"} {
		m.index.wheel("small", version, nil, "small/data.bin", strings.Repeat("0123456789", 10_000))
	}
	m.environ = append(m.environ, "UV_LINK_MODE=hardlink")
	m.config.Environ = m.environ
	text := func(version string) string { return "[pypi-dependencies]\nsmall = \"==" + version + "\"\n" }
	old := m.mustBuild(OutcomeBuilt, m.pack("kept", text("1.0")))
	kept := m.mustBuild(OutcomeBuilt, m.pack("kept", text("2.0")))
	gone := m.mustBuild(OutcomeBuilt, m.pack("gone", text("1.0")))
	recent := m.mustBuild(OutcomeBuilt, m.pack("recent", text("1.0")))
	off := m.mustBuild(OutcomeBuilt, m.pack("off", text("1.0")))
	nodes := filepath.Join(m.comfyui, "custom_nodes")
	for _, name := range []string{"gone", "recent"} {
		if err := os.RemoveAll(filepath.Join(nodes, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(nodes, "off"), filepath.Join(nodes, "off.disabled")); err != nil {
		t.Fatal(err)
	}
	partial := filepath.Join(filepath.Dir(kept.Revision), "0123456789abcdef-1")
	writeFile(t, filepath.Join(partial, "prefix", "half"), "x")
	for _, result := range []Result{old, kept, gone, recent, off} {
		age(t, result.Revision)
	}
	if err := m.store().MarkUsed(Environment{Name: "recent-nodes", Prefix: recent.Prefix}); err != nil {
		t.Fatal(err)
	}

	const month = 30 * 24 * time.Hour
	found := m.usages(month)
	for revision, want := range map[string]struct {
		state       string
		collectable bool
	}{
		old.Revision: {StateSuperseded, true}, kept.Revision: {StateUsed, false}, gone.Revision: {StateOrphan, true},
		recent.Revision: {StateOrphan, false}, off.Revision: {StateDisabled, false}, partial: {StatePartial, true},
	} {
		if got := found[revision]; got.State != want.state || got.Collectable != want.collectable || got.Reason == "" {
			t.Errorf("%s: %+v, want %+v", revision, got, want)
		}
		deleted, reason, err := m.store().Collect(t.Context(), found[revision], month)
		if err != nil || deleted != want.collectable || exists(revision) == want.collectable {
			t.Errorf("%s: deleted %t (%s) %v", revision, deleted, reason, err)
		}
	}
	// A hundred kilobytes that the cache holds as well are the environment's, but deleting it does not give them back.
	if got := found[kept.Revision]; got.Bytes < 100_000 || got.Exclusive > got.Bytes-100_000 {
		t.Errorf("%d bytes, %d of them its own", got.Bytes, got.Exclusive)
	}
	m.mustBuild(OutcomeUnchanged, filepath.Join(nodes, "kept"))
	if list, err := m.store().List(Query{AnyStack: true}); err != nil || len(list) != 3 {
		t.Errorf("%+v %v", list, err)
	}
}

func TestARevisionThatRunsIsNotCollected(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	old := m.mustBuild(OutcomeBuilt, m.pack("one", ""))
	m.mustBuild(OutcomeBuilt, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n"))
	worker := exec.Command(prefixPython(old.Prefix), "-c", "import sys; print('up', flush=True); sys.stdin.read()")
	input, output := processtest.Start(t, worker)
	if _, err := output.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	usage := m.usages(0)[old.Revision]
	if usage.Collectable || len(usage.Processes) != 1 || usage.Processes[0] != worker.Process.Pid {
		t.Errorf("%+v", usage)
	}
	if deleted, reason, err := m.store().Collect(t.Context(), usage, 0); deleted || err != nil || !strings.Contains(reason, "processes run from it") {
		t.Errorf("%t %q %v", deleted, reason, err)
	}
	input.Close()
	if err := worker.Wait(); err != nil {
		t.Fatal(err)
	}
	if usage = m.usages(0)[old.Revision]; !usage.Collectable {
		t.Errorf("%+v", usage)
	}
	if deleted, _, err := m.store().Collect(t.Context(), usage, 0); !deleted || err != nil {
		t.Errorf("%t %v", deleted, err)
	}
}
