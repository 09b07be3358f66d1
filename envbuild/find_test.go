package envbuild

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestANameIsLookedUpAmongTheComfyUIsPacksFirst(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	inside := m.pack("ComfyUI-Sample", "")
	outside := filepath.Join(m.folder, "elsewhere", "sample")
	writeFile(t, filepath.Join(outside, "nodes", "comfy-env.toml"), "")
	m.mustBuild(OutcomeBuilt, inside)
	m.mustBuild(OutcomeReused, outside) // the same plan: one revision serves both
	stack := m.facts().Stack()

	found, err := m.store().Find("sample-nodes", Query{ComfyUI: m.comfyui, Stack: stack})
	if err != nil || found.PackDirectory != inside {
		t.Errorf("%+v %v", found, err)
	}
	_, err = m.store().Find("sample-nodes", Query{Stack: stack})
	var ambiguous *AmbiguousError
	if !errors.As(err, &ambiguous) || len(ambiguous.Candidates) != 2 || !strings.Contains(err.Error(), inside) || !strings.Contains(err.Error(), outside) {
		t.Errorf("%v", err)
	}
	link := filepath.Join(m.folder, "link")
	if err := os.Symlink(m.comfyui, link); err == nil {
		if found, err := m.store().Find("sample-nodes", Query{ComfyUI: link, Stack: stack}); err != nil || found.PackDirectory != inside {
			t.Errorf("through a link: %+v %v", found, err)
		}
	}
	m.mustBuild(OutcomeReused, filepath.Join(link, "custom_nodes", "ComfyUI-Sample"))
	if _, err := m.store().Find("sample-nodes", Query{ComfyUI: m.comfyui, Stack: stack}); err != nil {
		t.Errorf("one pack under two names of its folder: %v", err)
	}
	if err := os.RemoveAll(outside); err != nil {
		t.Fatal(err)
	}
	if found, err := m.store().Find("sample-nodes", Query{AnyStack: true}); err != nil || found.PackDirectory != inside {
		t.Errorf("a pack that is gone still counts: %+v %v", found, err)
	}
}

func TestPacksThatAreGoneAreNoChoiceAndALongChoiceIsCutShort(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var packs []string
	for i := range 13 {
		pack := filepath.Join(m.folder, fmt.Sprintf("elsewhere-%02d", i), "sample")
		writeFile(t, filepath.Join(pack, "nodes", "comfy-env.toml"), "")
		for _, result := range m.build(pack) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
		packs = append(packs, pack)
	}
	_, err := m.store().Find("sample-nodes", Query{AnyStack: true})
	var ambiguous *AmbiguousError
	if !errors.As(err, &ambiguous) || len(ambiguous.Candidates) != 13 || strings.Count(err.Error(), "elsewhere-") != 10 || !strings.HasSuffix(err.Error(), "and 3 more") {
		t.Errorf("%v", err)
	}
	for _, pack := range packs {
		if err := os.RemoveAll(pack); err != nil {
			t.Fatal(err)
		}
	}
	_, err = m.store().Find("sample-nodes", Query{AnyStack: true})
	var missing *NotBuiltError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "the pack's manifest is gone") {
		t.Errorf("%v", err)
	}
}

func TestANameThatIsNotThereIsAnsweredWithTheNearest(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var none *NotFoundError
	if _, err := m.store().Find("anything", Query{}); !errors.As(err, &none) || !strings.Contains(err.Error(), "none has been built") {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"alpha", "beta"} {
		m.mustBuild(OutcomeBuilt, m.pack(name, ""))
	}
	_, err := m.store().Find("alhpa-nodes", Query{AnyStack: true})
	if !errors.As(err, &none) || !slices.Equal(none.Nearest, []string{"alpha-nodes", "beta-nodes"}) || !strings.Contains(err.Error(), `"alpha-nodes"`) {
		t.Errorf("%v", err)
	}
	_, err = m.store().Find("alpha-nodes", Query{Stack: "py312-torch2.10-cu128"})
	if !errors.As(err, &none) || len(none.Stacks) != 1 || !strings.Contains(err.Error(), "not for py312-torch2.10-cu128") {
		t.Errorf("another stack: %v", err)
	}
}

func TestAPackWithoutAnEnvironmentIsNotBuilt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	pack := m.pack("one", "")
	query := Query{ComfyUI: m.comfyui, Stack: m.facts().Stack()}
	var missing *NotBuiltError
	if _, err := m.store().Find("one-nodes", query); !errors.As(err, &missing) || missing.PackDirectory != pack || !strings.Contains(err.Error(), "comfy-supervisor build "+pack) {
		t.Errorf("%v", err)
	}
	built := m.mustBuild(OutcomeBuilt, pack)
	if _, err := m.store().Find("one-nodes", Query{ComfyUI: m.comfyui, Stack: "py312-torch2.10-cu128"}); !errors.As(err, &missing) || !strings.Contains(err.Error(), "it is built for "+m.facts().Stack()) {
		t.Errorf("another stack: %v", err)
	}
	if err := os.RemoveAll(built.Revision); err != nil {
		t.Fatal(err)
	}
	if _, err := m.store().Find("one-nodes", query); !errors.As(err, &missing) || !strings.Contains(err.Error(), "its revision is gone") {
		t.Errorf("%v", err)
	}
	m.mustBuild(OutcomeBuilt, pack)
	if _, err := m.store().Find("one-nodes", query); err != nil {
		t.Error(err)
	}
}

func TestWhatAWorkerNeedsIsRecorded(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "comfy-aimdo", "0.4.11")
	m.index.wheel("comfy-aimdo", "0.4.11", nil)
	m.environ = append(m.environ, "HF_HOME=/models")
	m.mustBuild(OutcomeBuilt, m.pack("one", "[env_vars]\nTONE = \"blue\"\n[options]\nhealth_check_timeout = 9\n"))
	found, err := m.store().Find("one-nodes", Query{ComfyUI: m.comfyui})
	if err != nil {
		t.Fatal(err)
	}
	if found.Variables["TONE"] != "blue" || found.Options.HealthCheckTimeout == nil || found.Options.HealthCheckTimeout.Seconds() != 9 ||
		found.Facts.Packages["comfy-aimdo"] != "0.4.11" || found.Facts.Environ["HF_HOME"] != "/models" || found.ComfyUI != m.comfyui ||
		found.Backend != BackendUV || found.Python != prefixPython(found.Prefix) || found.PlanHash == "" || found.BuiltAt.IsZero() {
		t.Errorf("%+v", found)
	}
	if found.NodesDirectory != filepath.Join(found.PackDirectory, "nodes") {
		t.Errorf("%+v", found)
	}
}

func TestARecordThatCanNotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.mustBuild(OutcomeBuilt, m.pack("one", ""))
	m.mustBuild(OutcomeBuilt, m.pack("two", ""))
	files, err := filepath.Glob(filepath.Join(m.store().records(), "one-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	writeFile(t, files[0], "{ cut")
	list, err := m.store().List(Query{AnyStack: true})
	if err != nil || len(list) != 1 || list[0].Name != "two-nodes" {
		t.Errorf("%+v %v", list, err)
	}
	m.mustBuild(OutcomeReused, filepath.Join(m.comfyui, "custom_nodes", "one"))
	if list, err := m.store().List(Query{ComfyUI: m.comfyui}); err != nil || len(list) != 2 {
		t.Errorf("%+v %v", list, err)
	}
}

func TestAListSaysOfEachEnvironmentWhatKeepsItFromUse(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, name := range []string{"gone", "moved", "usable"} {
		m.mustBuild(OutcomeBuilt, m.pack(name, ""))
	}
	gone, err := m.store().Find("gone-nodes", Query{ComfyUI: m.comfyui})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone.Python); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(m.comfyui, "custom_nodes", "moved")); err != nil {
		t.Fatal(err)
	}
	list, err := m.store().List(Query{ComfyUI: m.comfyui, Stack: gone.HostStack})
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	for i, want := range []string{"its interpreter " + gone.Python + " is gone", "the pack's manifest is gone", ""} {
		_, problem := m.store().Find(list[i].Name, Query{ComfyUI: m.comfyui, Stack: gone.HostStack})
		if fmt.Sprint(list[i].Problem) != fmt.Sprint(problem) {
			t.Errorf("%s: the list says %v, Find %v", list[i].Name, list[i].Problem, problem)
		}
		if want == "" && problem != nil || want != "" && (problem == nil || !strings.Contains(problem.Error(), want)) {
			t.Errorf("%s: %v, want %q", list[i].Name, problem, want)
		}
	}
	if list, err := m.store().List(Query{Stack: "py0-none"}); err != nil || len(list) != 0 {
		t.Errorf("of another stack: %+v %v", list, err)
	}
}
