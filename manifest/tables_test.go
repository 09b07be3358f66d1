package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"pgregory.net/rapid"
)

// only returns the one diagnostic about a content.
func only(t *testing.T, file, content string) Diagnostic {
	t.Helper()
	_, diagnostics := ParseFor("linux-64", file, []byte(content))
	if len(diagnostics) != 1 {
		t.Fatalf("about\n%s\n%d things are said:\n%s", content, len(diagnostics), verdict(file, diagnostics))
	}
	return diagnostics[0]
}

func TestEverySectionOfThePastIsRefusedWithItsPresentSpelling(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(retired)) {
		for _, content := range []string{"[" + name + "]\nx = 1\n", name + " = \"x\"\n"} {
			if d := only(t, EnvironmentFile, content); d.Severity != Error || d.Code != CodeRetired || d.Why == "" {
				t.Errorf("%s gives %+v", content, d)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(retiredRoot)) {
		if d := only(t, RootFile, "["+name+"]\nx = 1\n"); d.Severity != Error || d.Code != CodeRetired || d.Why == "" {
			t.Errorf("[%s] in a root file gives %+v", name, d)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(platformSections)) {
		if d := only(t, EnvironmentFile, "["+name+"]\npackages = []\n"); d.Code != CodeRetired || !strings.Contains(d.Fix, "[target."+platformSections[name]+".") {
			t.Errorf("[%s] gives %+v", name, d)
		}
	}
}

func TestEverySectionOfAnEnvironmentIsMisplacedInARootFile(t *testing.T) {
	for _, name := range environmentKeys {
		if d := only(t, RootFile, "["+name+"]\n"); d.Severity != Error || d.Code != CodeMisplaced || !strings.Contains(d.Fix, EnvironmentFile) {
			t.Errorf("[%s] gives %+v", name, d)
		}
	}
}

func TestEveryVariableIsJudgedByItsTable(t *testing.T) {
	for _, c := range []struct {
		names    []string
		severity Severity
		code     Code
		kept     bool
	}{
		{slices.Sorted(maps.Keys(breakingVariables)), Error, CodeEnvVarBreaks, false},
		{slices.Sorted(maps.Keys(hostVariables)), Warning, CodeEnvVarHost, false},
		{slices.Sorted(maps.Keys(doubtfulVariables)), Warning, CodeEnvVarBreaks, true},
	} {
		for _, name := range c.names {
			content := "[env_vars]\n" + name + " = \"x\"\n"
			d := only(t, EnvironmentFile, content)
			m, _ := Parse(EnvironmentFile, []byte(content))
			if _, kept := m.EnvVars[name]; d.Severity != c.severity || d.Code != c.code || kept != c.kept {
				t.Errorf("%s: kept %v, %+v", name, kept, d)
			}
		}
	}
	for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "COMFY_ENV_WORKER_AIMDO", "COMFY_ENV_WORKER_ATTENTION", "COMFY_ENV_NO_MIRROR", "OMP_NUM_THREADS", "HF_HOME", "PYTHONHASHSEED"} {
		m, diagnostics := Parse(EnvironmentFile, []byte("[env_vars]\n"+name+" = \"1\"\n"))
		if len(diagnostics) > 0 || m.EnvVars[name] != "1" {
			t.Errorf("%s is not a pack's to set: %v", name, diagnostics)
		}
	}
}

func TestVariablesOfActivationMayStandForOthersAndAddToPath(t *testing.T) {
	m, diagnostics := Parse(EnvironmentFile, []byte("[activation.env]\nDATA = \"$HOME/data\"\nPATH = \"$CONDA_PREFIX/cuda/bin:${PATH}\"\n"))
	want := map[string]string{"DATA": "$HOME/data", "PATH": "$CONDA_PREFIX/cuda/bin:${PATH}"}
	if len(diagnostics) > 0 || !maps.Equal(m.Activation.Env, want) {
		t.Errorf("%v %v", m.Activation.Env, diagnostics)
	}
	for _, content := range []string{"[activation.env]\nPATH = \"/opt/bin:$PATHS\"\n", "[env_vars]\nPATH = \"/opt/bin:/usr/bin\"\n"} {
		if d := only(t, EnvironmentFile, content); d.Severity != Error || d.Code != CodeEnvVarBreaks {
			t.Errorf("%s: %+v", content, d)
		}
	}
}

func TestEveryPackageOfOnePlatformIsRefusedOnTheOthers(t *testing.T) {
	for name, only := range platformOnly {
		for _, platform := range []string{"linux-64", "win-64", "osx-arm64"} {
			_, diagnostics := ParseFor(platform, EnvironmentFile, []byte("[pypi-dependencies]\n"+name+" = \"*\"\n"))
			fits := slices.ContainsFunc(only.platforms, func(prefix string) bool { return strings.HasPrefix(platform, prefix) })
			if fits == HasErrors(diagnostics) {
				t.Errorf("%s on %s: %v", name, platform, diagnostics)
			}
		}
	}
}

func TestEveryOptionTakesItsExampleAndTheSchemaKnowsIt(t *testing.T) {
	environment := compileSchema(t, false)
	for i := range OptionKeys {
		key := &OptionKeys[i]
		content := fmt.Sprintf("[options]\n%s = %s\n", key.Name, key.Example)
		m, diagnostics := Parse(EnvironmentFile, []byte(content))
		if len(diagnostics) > 0 || !key.IsSet(&m.Options) {
			t.Errorf("%s is not taken: %v", content, diagnostics)
		}
		if failure, _ := validate(t, environment, []byte(content)); failure != nil {
			t.Errorf("the schema refuses %s: %v", content, failure)
		}
		if merged := (Options{}).Merge(m.Options); !key.IsSet(&merged) {
			t.Errorf("%s is lost when options are merged", key.Name)
		}
		if merged := m.Options.Merge(Options{}); !key.IsSet(&merged) {
			t.Errorf("%s is lost when nothing is merged over it", key.Name)
		}
	}
}

func TestDatesBeforeWhichPackagesAreTakenAreKept(t *testing.T) {
	for content, want := range map[string][2]string{
		"exclude-newer = \"2026-01-31\"": {"2026-01-31", ""}, "exclude-newer = 2026-01-31": {"2026-01-31", ""}, "pypi-exclude-newer = \"7d\"": {"", "7d"},
		"[pypi-exclude-newer]\nnumpy = \"2026-01-31\"": {"", ""},
	} {
		m, diagnostics := Parse(EnvironmentFile, []byte(content))
		if len(diagnostics) > 0 || m.ExcludeNewer != want[0] || m.PyPIExcludeNewer != want[1] {
			t.Errorf("%s gives %q and %q, %v", content, m.ExcludeNewer, m.PyPIExcludeNewer, diagnostics)
		}
	}
	if d := only(t, EnvironmentFile, "exclude-newer = 2026"); d.Code != CodeType || d.Column != 17 {
		t.Errorf("a number gives %+v", d)
	}
}

func TestWhatIsQuotedIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("a\"\\\n\t\r\x00\x1f\x7fé日🎉= "))).Draw(t, "text")
		var back map[string]string
		if err := toml.Unmarshal([]byte(quoteName(text)+" = "+quote(text)), &back); err != nil {
			t.Fatalf("%q is written as no TOML: %v", text, err)
		}
		if back[text] != text {
			t.Fatalf("%q comes back as %q", text, back)
		}
	})
}
