//go:build unix

package envbuild

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const activatingManifest = `[env_vars]
MINE = "1"
[activation]
scripts = ["../activate.sh"]
[activation.env]
DATA = "$MODEL_ROOT/data"
`

func TestActivationScriptsRunOnceWhenAnEnvironmentIsBuilt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	pack := m.pack("one", activatingManifest)
	script := filepath.Join(pack, "activate.sh")
	writeFile(t, script, "echo a word of its own\nexport MODEL_ROOT=\"$VIRTUAL_ENV/models of $TONE\"\nexport PATH=\"/opt/first:$PATH:/opt/last\"\nunset HOME\n")
	m.config.Environ = append(m.environ, "TONE=blue")
	result := m.mustBuild(OutcomeBuilt, pack)
	find := func() Environment {
		t.Helper()
		environment, err := m.store().Find("one-nodes", Query{AnyStack: true})
		if err != nil {
			t.Fatal(err)
		}
		return environment
	}
	environment := find()
	if want := map[string]string{"MODEL_ROOT": result.Prefix + "/models of blue"}; !maps.Equal(environment.Activated, want) {
		t.Errorf("activated %v, want %v", environment.Activated, want)
	}
	if !maps.Equal(environment.Activation, map[string]string{"DATA": "$MODEL_ROOT/data"}) || !maps.Equal(environment.Variables, map[string]string{"MINE": "1"}) {
		t.Errorf("activation %v, variables %v", environment.Activation, environment.Variables)
	}
	if !slices.Equal(environment.PathFirst, []string{"/opt/first"}) || !slices.Equal(environment.PathLast, []string{"/opt/last"}) {
		t.Errorf("folders %v and %v", environment.PathFirst, environment.PathLast)
	}
	if !m.said(EventLine, "activation puts /opt/first on PATH") {
		t.Errorf("%q", m.texts(EventLine))
	}
	if log, err := os.ReadFile(filepath.Join(filepath.Dir(result.Revision), "build.log")); err != nil || !strings.Contains(string(log), "a word of its own") {
		t.Errorf("the log: %v\n%s", err, log)
	}
	m.mustBuild(OutcomeUnchanged, pack)

	writeFile(t, script, "export MODEL_ROOT=/elsewhere\n")
	changed := m.mustBuild(OutcomeBuilt, pack)
	if len(changed.Why) != 1 || changed.Why[0] != script+" changed" {
		t.Errorf("why: %q", changed.Why)
	}
	if environment := find(); environment.Activated["MODEL_ROOT"] != "/elsewhere" {
		t.Errorf("activated %v", environment.Activated)
	}
	m.pack("one", activatingManifest+"MORE = \"2\"\n") // read at launch: nothing is built for it
	m.mustBuild(OutcomeUnchanged, pack)
	if environment := find(); environment.Activation["MORE"] != "2" || environment.Activated["MODEL_ROOT"] != "/elsewhere" {
		t.Errorf("%v", environment)
	}

	for content, reason := range map[string]string{
		"echo no licence >&2\nfalse\n": "its activation scripts fail: exit status 1: no licence",
		"exit 0\n":                     "what its activation scripts set can not be read",
	} {
		writeFile(t, script, content)
		if failed := m.mustBuild(OutcomeFailed, pack); !strings.Contains(failed.Error, reason) {
			t.Errorf("%q: %s", content, failed.Error)
		}
	}
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	if failed := m.mustBuild(OutcomeFailed, pack); !strings.Contains(failed.Error, "comfy-env.toml:4: the activation script: ") {
		t.Error(failed.Error)
	}
}
