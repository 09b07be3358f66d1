//go:build unix

package envbuild

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// comfyEnv lays an environment out as comfy-env does, in a folder of that name below the root, for the pack "one".
func (m *machine) comfyEnv(folder, stack string) string {
	m.t.Helper()
	root := filepath.Join(m.config.Root, "envs", folder)
	prefix := pixiPrefix(root)
	if output, err := exec.Command(needPython(m.t, ""), "-m", "venv", "--without-pip", prefix).CombinedOutput(); err != nil {
		m.t.Fatalf("%v %s", err, output)
	}
	version := m.facts().Python.Version
	writeFile(m.t, filepath.Join(prefix, condaMetadata, "python-"+version+"-h2628c8c_0_cpython.json"), "{}")
	site := sitePackages(prefix, version)
	for _, name := range []string{"torch", "small"} {
		writeFile(m.t, filepath.Join(site, name+"-2.10.0.dist-info", "METADATA"), "Metadata-Version: 2.1\nName: "+name+"\nVersion: 2.10.0\n")
	}
	writeFile(m.t, filepath.Join(site, "torch", "version.py"), "__version__ = '2.10.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n")
	writeFile(m.t, filepath.Join(prefix, "etc", "conda", "activate.d", "gdal.sh"),
		"echo noise\nexport GDAL_DATA=\"$CONDA_PREFIX/share/gdal\"\n[ -n \"$BASH_VERSION\" ] && export ARRAYS=yes\nexport PATH=\"/opt/of/a/script:$PATH\"\n")
	writeFile(m.t, filepath.Join(root, "pixi.toml"), "[workspace]\nname = \"one-nodes\"\n[dependencies]\npython = \"3.*\"\n[pypi-dependencies]\nsmall = \"*\"\ntorch = \"==2.10.0\"\n")
	writeFile(m.t, filepath.Join(root, "pixi.lock"), "version: 6\n")
	sum := sha256.Sum256([]byte("version: 6\n"))
	stamp, err := json.Marshal(map[string]any{"comfy_env_version": "0.4.46", "abi_tag": stack, "source": "one/nodes/comfy-env.toml",
		"torch_pin": "==2.10.0", "provenance": "bootstrap", "pixi_lock_sha256": hex.EncodeToString(sum[:])})
	if err != nil {
		m.t.Fatal(err)
	}
	writeFile(m.t, filepath.Join(root, "env.stamp.json"), string(stamp))
	return root
}

// forecast is what a build of one pack would do.
func (m *machine) forecast(pack string) Forecast {
	m.t.Helper()
	builder, err := NewBuilder(m.config, m.facts())
	if err != nil {
		m.t.Fatal(err)
	}
	defer builder.Close()
	work, problems := Discover([]string{pack}, m.facts().Platform)
	if len(work) != 1 || len(problems) > 0 {
		m.t.Fatalf("%v %v", work, problems)
	}
	plan, err := builder.Plan(work[0])
	if err != nil {
		m.t.Fatal(err)
	}
	return builder.Check(plan)
}

// treeOf is every file below a folder with its size and time.
func treeOf(t *testing.T, root string) string {
	t.Helper()
	var tree strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&tree, path, info.Size(), info.ModTime())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree.String()
}

// comfyMachine is a host with torch on the processor and a pack that comfy-env has built.
func comfyMachine(t *testing.T) (*machine, string, string) {
	t.Helper()
	m := newMachine(t, "torch", "2.10.0+cpu")
	m.index.torch("cpu", "2.10.0", "cpu")
	m.index.wheel("small", "1.0", nil)
	m.index.wheel("added", "1.0", nil)
	return m, m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n[env_vars]\nMINE = \"1\"\n"), m.facts().Stack()
}

func TestAnEnvironmentOfComfyEnvsIsUsedWhereItStandsUntilItsManifestChanges(t *testing.T) {
	t.Parallel()
	m, pack, stack := comfyMachine(t)
	theirs := m.comfyEnv("one-nodes_"+stack, stack)
	before := treeOf(t, theirs)
	if forecast := m.forecast(pack); forecast.Unchanged || forecast.Reuse != theirs || treeOf(t, theirs) != before {
		t.Errorf("forecast %+v", forecast)
	}
	result := m.mustBuild(OutcomeReused, pack)
	if forecast := m.forecast(pack); !forecast.Unchanged || forecast.Reuse != "" {
		t.Errorf("forecast %+v", forecast)
	}
	if result.Prefix != pixiPrefix(theirs) {
		t.Fatalf("prefix %s", result.Prefix)
	}
	if !m.said(EventLine, "used where comfy-env built it, until the manifest changes: "+theirs) {
		t.Errorf("%q", m.texts(EventLine))
	}
	if !m.said(EventLine, "activation puts /opt/of/a/script on PATH") {
		t.Errorf("%q", m.texts(EventLine))
	}
	if m.index.asked("small") > 0 {
		t.Error("an index was asked")
	}
	environment, err := m.store().Find("one-nodes", Query{ComfyUI: m.comfyui, Stack: stack})
	if err != nil {
		t.Fatal(err)
	}
	if environment.Backend != BackendPixi || environment.Prefix != result.Prefix {
		t.Errorf("%+v", environment)
	}
	want := map[string]string{"GDAL_DATA": result.Prefix + "/share/gdal", "ARRAYS": "yes"}
	if _, err := os.Stat("/bin/bash"); err != nil {
		delete(want, "ARRAYS")
	}
	for name, value := range want {
		if environment.Activated[name] != value {
			t.Errorf("%s=%q, want %q", name, environment.Activated[name], value)
		}
	}
	if len(environment.Activated) != len(want) || environment.Variables["MINE"] != "1" {
		t.Errorf("activated %v, variables %v", environment.Activated, environment.Variables)
	}
	if !slices.Equal(environment.PathFirst, []string{"/opt/of/a/script"}) || len(environment.PathLast) > 0 {
		t.Errorf("folders %v and %v", environment.PathFirst, environment.PathLast)
	}
	if _, err := m.store().Pack(t.Context(), environment, filepath.Join(m.folder, "theirs.tar")); err == nil || !strings.Contains(err.Error(), "comfy-env built it") {
		t.Errorf("packing it: %v", err)
	}
	if err := m.store().MarkUsed(environment); err != nil {
		t.Fatal(err)
	}
	if usage := m.usages(0)[result.Revision]; usage.Collectable || usage.State != StateUsed || usage.Bytes > 1<<20 {
		t.Errorf("%+v", usage)
	}
	m.mustBuild(OutcomeUnchanged, pack)
	if after := treeOf(t, theirs); after != before {
		t.Errorf("it was written to:\n%s\nthen\n%s", before, after)
	}
	m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\nadded = \"*\"\n")
	if forecast := m.forecast(pack); forecast.Unchanged || forecast.Reuse != "" {
		t.Errorf("forecast %+v", forecast)
	}
	ours := m.mustBuild(OutcomeBuilt, pack)
	if !strings.HasPrefix(ours.Prefix, m.store().environments()) || treeOf(t, theirs) != before {
		t.Errorf("%s", ours.Prefix)
	}
	usage := m.usages(0)[result.Revision]
	if deleted, reason, err := m.store().Collect(t.Context(), usage, 0); !deleted || err != nil {
		t.Errorf("%s %v", reason, err)
	}
	if treeOf(t, theirs) != before {
		t.Error("collecting our revision touched comfy-env's environment")
	}
}

func TestTheOlderSpellingsOfComfyEnvAreFound(t *testing.T) {
	t.Parallel()
	m, pack, stack := comfyMachine(t)
	theirs := m.comfyEnv("one-nodes-"+strings.ReplaceAll(stack, ".", "-"), stack)
	if err := os.Remove(filepath.Join(theirs, "env.stamp.json")); err != nil {
		t.Fatal(err)
	}
	if result := m.mustBuild(OutcomeReused, pack); result.Prefix != pixiPrefix(theirs) {
		t.Errorf("%s", result.Prefix)
	}
}

func TestAnEnvironmentOfComfyEnvsThatDoesNotServeIsRefusedWithALine(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		spoil func(m *machine, theirs string)
		line  string
	}{
		"stack": {func(m *machine, theirs string) {
			writeFile(t, filepath.Join(theirs, "env.stamp.json"), `{"abi_tag": "py39-torch1.0-cu92"}`)
		}, "it is built for py39-torch1.0-cu92"},
		"source": {func(m *machine, theirs string) {
			writeFile(t, filepath.Join(theirs, "env.stamp.json"), `{"source": "other/nodes/comfy-env.toml"}`)
		}, "it is built from other/nodes/comfy-env.toml"},
		"stamp": {func(m *machine, theirs string) {
			writeFile(t, filepath.Join(theirs, "env.stamp.json"), `[1`)
		}, "its stamp can not be read"},
		"lock": {func(m *machine, theirs string) {
			writeFile(t, filepath.Join(theirs, "pixi.lock"), "version: 7\n")
		}, "its lock file has changed"},
		"script": {func(m *machine, theirs string) {
			writeFile(t, filepath.Join(pixiPrefix(theirs), "etc", "conda", "activate.d", "broken.sh"), "echo no licence >&2\nfalse\n")
		}, "its activation scripts fail: exit status 1: no licence"},
		"manifest": {func(m *machine, theirs string) {
			m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\nadded = \"*\"\n")
		}, "the manifest asks for added, which it was not built with"},
		"version": {func(m *machine, theirs string) {
			m.pack("one", "[pypi-dependencies]\nsmall = \">=1\"\n")
		}, "the manifest asks for small >=1, and it was built with *"},
		"torch": {func(m *machine, theirs string) {
			m.index.torch("cpu", "2.10.1", "cpu")
			m.install("torch", "2.10.1+cpu")
		}, "it has torch 2.10.0, and the host 2.10.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, pack, stack := comfyMachine(t)
			theirs := m.comfyEnv("one-nodes_"+stack, stack)
			one.spoil(m, theirs)
			result := m.mustBuild(OutcomeBuilt, pack)
			if !m.said(EventLine, one.line) || !strings.Contains(strings.Join(result.Lines, "\n"), one.line) {
				t.Errorf("lines %q", result.Lines)
			}
			if !strings.HasPrefix(result.Prefix, m.store().environments()) {
				t.Errorf("prefix %s", result.Prefix)
			}
			if left, _, err := revisions(filepath.Dir(result.Revision), ""); err != nil || len(left) != 1 {
				t.Errorf("revisions %v %v", left, err)
			}
		})
	}
}
