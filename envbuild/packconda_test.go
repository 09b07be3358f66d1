//go:build unix

package envbuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatOnlyHasItsPlaceIsNotPackedOrStaysThere(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.usePixi(t)
	pack := m.pack("one", condaManifest)
	built := m.mustBuild(OutcomeBuilt, pack)
	file := m.packOne("one-nodes", "conda.tar")
	root := m.config.Root
	m.config.Root = filepath.Join(m.folder, "other")
	if result := m.unpack(m.facts(), file, pack); !strings.Contains(result.Error, "conda writes the place of an environment into its files") ||
		!strings.Contains(result.Error, "set COMFY_ENV_ROOT to "+root+"\n") && !strings.HasSuffix(result.Error, "set COMFY_ENV_ROOT to "+root) {
		t.Error(result.Error)
	}
	m.config.Root = root
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if result := m.unpack(m.facts(), file, pack); result.Outcome != OutcomeUnpacked || result.Prefix != built.Prefix {
		t.Errorf("%s %s", result.Outcome, result.Error)
	}
	m.mustBuild(OutcomeUnchanged, pack)

	damaged, err := m.store().Find("one-nodes", Query{AnyStack: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(sitePackages(damaged.Prefix, damaged.PythonVersion), "small-1.0.dist-info")); err != nil {
		t.Fatal(err)
	}
	_, err = m.store().Pack(t.Context(), damaged, filepath.Join(m.folder, "damaged.tar"))
	if err == nil || !strings.Contains(err.Error(), "small-1.0.dist-info was deleted from its packages; build it again first") {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(m.folder, "*damaged*")); err != nil || len(left) > 0 {
		t.Errorf("left %v %v", left, err)
	}
}
