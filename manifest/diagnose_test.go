package manifest

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// expected is one diagnostic of a test: where, how severe, of what kind, the offending text and a part of the fix.
type expected struct {
	line, column int
	severity     Severity
	code         Code
	text         string
	fix          string
}

func (e expected) matches(d Diagnostic) bool {
	return d.Line == e.line && d.Column == e.column && d.Severity == e.severity && d.Code == e.code && d.Text == e.text && strings.Contains(d.Fix, e.fix)
}

// expect compares what is said about a file with what should be said, each exactly once.
func expect(t *testing.T, file, content string, want []expected) {
	t.Helper()
	_, got := ParseFor("linux-64", file, []byte(content))
	left := append([]Diagnostic(nil), got...)
	for _, e := range want {
		found := false
		for i, d := range left {
			if e.matches(d) {
				left = append(left[:i], left[i+1:]...)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("not said: %d:%d %s[%s] about %q, fix %q", e.line, e.column, e.severity, e.code, e.text, e.fix)
		}
	}
	for _, d := range left {
		t.Errorf("unexpected: %d:%d %s[%s] about %q: %s; fix %q", d.Line, d.Column, d.Severity, d.Code, d.Text, d.Message, d.Fix)
	}
	checkDiagnostics(t, []byte(content), got)
}

// complainer is a test, or a run of a property.
type complainer interface {
	Helper()
	Errorf(format string, arguments ...any)
}

// checkDiagnostics holds what every diagnostic promises.
func checkDiagnostics(t complainer, content []byte, diagnostics []Diagnostic) {
	t.Helper()
	lines := strings.Split(string(content), "\n")
	for _, d := range diagnostics {
		switch {
		case d.Line < 1 || d.Column < 1 || d.Length < 1:
			t.Errorf("%s: the position is %d:%d, %d long", d.Code, d.Line, d.Column, d.Length)
		case d.Line > len(lines):
			t.Errorf("%s: line %d of %d", d.Code, d.Line, len(lines))
		case d.Column > utf8.RuneCountInString(lines[d.Line-1])+1:
			t.Errorf("%s: column %d of line %d is behind its end", d.Code, d.Column, d.Line)
		case d.Message == "" || d.Fix == "" || d.Code == "":
			t.Errorf("%d:%d: message %q, fix %q, code %q: one is missing", d.Line, d.Column, d.Message, d.Fix, d.Code)
		case d.Severity < Note || d.Severity > Error:
			t.Errorf("%s: the severity is %d", d.Code, d.Severity)
		}
		for _, edit := range d.Edits {
			if edit.Start < 0 || edit.End < edit.Start || edit.End > len(content) {
				t.Errorf("%s: the edit %d-%d is outside the file of %d bytes", d.Code, edit.Start, edit.End, len(content))
			}
		}
	}
}

func TestWhatIsWrongInAnEnvironmentFileIsSaidWithItsPlaceAndRemedy(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          []expected
	}{
		{"an unquoted Python version", "python = 3.10", []expected{{1, 10, Error, CodePythonQuotes, "3.10", `write python = "3.10"`}}},
		{"a Python version that is a whole number", "python = 3", []expected{{1, 10, Error, CodePythonQuotes, "3", `write python = "3.12"`}}},
		{"a Python that is too old", "python = \"3.9\"", []expected{{1, 11, Error, CodePythonTooOld, "3.9", `"3.10" or a later`}}},
		{"Python 2", "python = \"2.7\"", []expected{{1, 11, Error, CodePythonTooOld, "2.7", `"3.10" or a later`}}},
		{"a range of Python versions", "python = \">=3.10\"", []expected{{1, 11, Error, CodePythonVersion, ">=3.10", `write python = "3.12"`}}},
		{"a Python version with a comparison", "python = \"==3.11.*\"", []expected{{1, 11, Warning, CodePythonVersion, "==3.11.*", `write python = "3.11"`}}},
		{"a Python version as wheels name it", "python = \"cp312\"", []expected{{1, 11, Error, CodePythonVersion, "cp312", `write python = "3.12"`}}},
		{"a Python that is a list", "python = [\"3.11\"]", []expected{{1, 10, Error, CodeType, `["3.11"]`, `write python = "3.12"`}}},
		{"Python among the conda packages", "[dependencies]\npython = \"3.11.*\"", []expected{{2, 1, Warning, CodePythonConda, "python", `write python = "3.11" at the top`}}},
		{"two Python versions", "python = \"3.12\"\n[dependencies]\npython = \"3.11\"", []expected{{3, 1, Error, CodeConflict, "python", "remove this line"}}},

		{"a misspelt section", "[pypi-dependancies]\nnumpy = \"=1\"", []expected{
			{1, 2, Error, CodeUnknownTable, "pypi-dependancies", "write [pypi-dependencies]"}, {2, 10, Error, CodePyPIVersion, "=1", `write "==1"`}}},
		{"a section of nowhere", "[llama]\nx = 1", []expected{{1, 2, Error, CodeUnknownTable, "llama", "known are python, cuda"}}},
		{"an option outside its section", "health_check_timeout = 5", []expected{{1, 1, Error, CodeUnknownTable, "health_check_timeout", "move it to [options]"}}},
		{"a section that pixi would generate", "[environments]\ndefault = []", []expected{{1, 2, Error, CodeRefused, "environments", "a folder below nodes"}}},
		{"a feature", "[feature.gpu.dependencies]\nx = \"*\"", []expected{{1, 2, Error, CodeRefused, "feature", "a folder below nodes"}}},
		{"a section of the root file", "[node_packs]\na = \"b/c\"", []expected{{1, 2, Error, CodeMisplaced, "node_packs", "comfy-env-root.toml"}}},
		{"types", "[types]\nA = \"custom\"", []expected{{1, 2, Error, CodeMisplaced, "types", "comfy-env-root.toml"}}},
		{"packs under their old name", "[node_reqs]", []expected{{1, 2, Error, CodeRetired, "node_reqs", "as [node_packs]"}}},
		{"system packages", "[apt]\npackages = [\"libgl1\", \"libsm6\", \"unknown\"]", []expected{{1, 2, Error, CodeRetired, "apt", `libgl = "*", xorg-libsm = "*"`}}},
		{"packages of macOS", "[brew]\npackages = [\"ffmpeg\"]", []expected{{1, 2, Error, CodeRetired, "brew", `[target.osx-arm64.dependencies]: ffmpeg = "*"`}}},
		{"a workspace under its old name", "[project]\nchannels = [\"a\"]", []expected{{1, 2, Error, CodeRetired, "project", "write [workspace]"}}},
		{"a named environment", "[mine]\npython = \"3.11\"\ncuda_version = \"auto\"\n[mine.packages]\nrequirements = [\"a[b]>=1\", \"c\"]", []expected{
			{1, 2, Error, CodeRetired, "mine", "at the top"}, {2, 1, Error, CodeRetired, "python", `python = "3.11"`}, {3, 1, Error, CodeRetired, "cuda_version", "remove the line"},
			{4, 7, Error, CodeRetired, "packages", `a = { version = ">=1", extras = ["b"] }, c = "*" below [pypi-dependencies]`}}},
		{"tasks", "[tasks]\na = \"b\"", []expected{{1, 2, Warning, CodeIgnored, "tasks", "pixi.toml of your own"}}},
		{"other tools' sections", "[tool.black]\nx = 1", []expected{{1, 2, Note, CodeIgnored, "tool", "keep it"}}},

		{"torch among the Python packages", "[pypi-dependencies]\nTorch = \">=2\"\ntorchvision = \"*\"", []expected{
			{2, 1, Note, CodeTorchHost, "Torch", "nothing needs to be done"}, {3, 1, Note, CodeTorchHost, "torchvision", "nothing needs to be done"}}},
		{"torch among the conda packages of a platform", "[target.linux-64.dependencies]\npytorch = \"*\"", []expected{{2, 1, Note, CodeTorchHost, "pytorch", "nothing"}}},
		{"torch as a CUDA package", "[cuda]\npackages = [\"torch\", \"flash-attn\"]", []expected{{2, 13, Warning, CodeTorchCUDA, `"torch"`, "remove it from the list"}}},
		{"a pin that is the host's", "[pypi-dependencies]\ncomfy_aimdo = \"*\"", []expected{{2, 1, Note, CodeHostPin, "comfy_aimdo", "nothing"}}},
		{"an exact pin that is the host's", "[pypi-dependencies]\ncomfy-kitchen = \"==0.2.1\"", []expected{{2, 1, Warning, CodeHostPin, "comfy-kitchen", "remove the line"}}},

		{"CUDA packages as keys", "[cuda]\nflash-attn = \"2.8.3\"\nspconv = \"*\"", []expected{
			{2, 1, Warning, CodeRetired, "flash-attn", `packages = ["flash-attn==2.8.3", "spconv"]`}, {3, 1, Warning, CodeRetired, "spconv", "packages = "}}},
		{"a misspelt key of [cuda]", "[cuda]\npakages = [\"a\"]", []expected{{2, 1, Warning, CodeUnknownKey, "pakages", "write packages"}}},
		{"one CUDA package as a string", "[cuda]\npackages = \"flash-attn\"", []expected{{2, 12, Warning, CodeType, `"flash-attn"`, `packages = ["flash-attn"]`}}},
		{"a CUDA package twice", "[cuda]\npackages = [\"flash-attn\", \"flash_attn\"]", []expected{{2, 27, Warning, CodeCUDADuplicate, `"flash_attn"`, "remove one"}}},
		{"a CUDA package that is a number", "[cuda]\npackages = [1]", []expected{{2, 13, Error, CodeType, "1", "flash-attn"}}},
		{"[cuda] that is a list", "cuda = [\"flash-attn\"]", []expected{{1, 8, Error, CodeType, `["flash-attn"]`, "packages = "}}},
		{"a CUDA package with a bad version", "[cuda]\npackages = [\"flash-attn=2.8\"]", []expected{{2, 24, Error, CodePyPIVersion, "=2.8", `write "flash-attn==2.8"`}}},

		{"variables that would break a worker", "[env_vars]\nPYTHONHOME = \"/x\"\nCOMFY_SUPERVISOR_WORKER = \"1\"\nVIRTUAL_ENV = \"/v\"", []expected{
			{2, 1, Error, CodeEnvVarBreaks, "PYTHONHOME", "remove"}, {3, 1, Error, CodeEnvVarBreaks, "COMFY_SUPERVISOR_WORKER", "remove"}, {4, 1, Error, CodeEnvVarBreaks, "VIRTUAL_ENV", "remove"}}},
		{"a variable that is the host's", "[env_vars]\nCUDA_VISIBLE_DEVICES = \"0\"", []expected{{2, 1, Warning, CodeEnvVarHost, "CUDA_VISIBLE_DEVICES", "remove"}}},
		{"a variable that loads libraries", "[env_vars]\nLD_PRELOAD = \"libtcmalloc.so\"", []expected{{2, 1, Warning, CodeEnvVarBreaks, "LD_PRELOAD", "if the nodes work without"}}},
		{"a variable that hopes to be expanded", "[env_vars]\nCACHE = \"$HOME/x\"", []expected{{2, 10, Warning, CodeEnvVarBreaks, "$HOME", "the value itself"}}},
		{"a variable that is a boolean", "[env_vars]\nA = true", []expected{{2, 5, Warning, CodeType, "true", `"True"`}}},
		{"a variable that is a list", "[env_vars]\nA = [\"b\"]", []expected{{2, 5, Error, CodeType, `["b"]`, `NAME = "value"`}}},
		{"a variable with an impossible name", "[env_vars]\n\"A=B\" = \"c\"", []expected{{2, 1, Error, CodeEnvVarName, `"A=B"`, "NAME"}}},
		{"variables of the activation follow the same rules", "[activation.env]\nPYTHONPATH = \"x\"", []expected{{2, 1, Error, CodeEnvVarBreaks, "PYTHONPATH", "remove"}}},

		{"a misspelt option", "[options]\nhealth_check_timout = 5", []expected{{2, 1, Warning, CodeUnknownKey, "health_check_timout", "write health_check_timeout"}}},
		{"a limit that is no duration", "[options]\nstart = \"soon\"", []expected{{2, 10, Error, CodeValue, "soon", `start = "120s"`}}},
		{"a negative limit", "[options]\nreap = -1", []expected{{2, 8, Error, CodeRange, "-1", `reap = "30m"`}}},
		{"a health check in no time", "[options]\nhealth_check_timeout = 0", []expected{{2, 24, Error, CodeRange, "0", "health_check_timeout = 5"}}},
		{"a limit that is a boolean", "[options]\nreap = false", []expected{{2, 8, Error, CodeType, "false", `reap = "30m"`}}},
		{"a misspelt inference mode", "[options]\ninference = \"inference-mode\"", []expected{{2, 14, Error, CodeValue, "inference-mode", `write "inference_mode"`}}},
		{"a cap without a unit", "[options.memory]\nvram = 8", []expected{{2, 8, Error, CodeType, "8", `vram = "8GiB"`}}},
		{"a cap above everything", "[options.memory]\nram = \"101%\"", []expected{{2, 8, Error, CodeRange, "101%", `ram = "16GiB"`}}},
		{"a cap of nothing", "[options.memory]\nvram = \"0GiB\"", []expected{{2, 9, Error, CodeRange, "0GiB", "vram ="}}},
		{"a cap outside its section", "[options]\nvram = \"8GiB\"", []expected{{2, 1, Warning, CodeMisplaced, "vram", "[options.memory]"}}},
		{"a misspelt cap", "[options.memory]\npined_ram = \"1GiB\"", []expected{{2, 1, Warning, CodeUnknownKey, "pined_ram", "write pinned_ram"}}},

		{"a package's misspelt key", "[pypi-dependencies]\na = { versoin = \"*\" }", []expected{{2, 7, Error, CodeUnknownKey, "versoin", "write version"}}},
		{"two places for one package", "[pypi-dependencies]\na = { version = \"*\", git = \"https://h/a\" }", []expected{{2, 22, Error, CodeConflict, "git", "keep one"}}},
		{"no place for a package", "[pypi-dependencies]\na = { extras = [\"b\"] }", []expected{{2, 1, Error, CodeConflict, "a", `version = "*"`}}},
		{"a branch without git", "[pypi-dependencies]\na = { version = \"*\", branch = \"b\" }", []expected{{2, 22, Error, CodeConflict, "branch", "git ="}}},
		{"branch and tag", "[pypi-dependencies]\na = { git = \"https://h/a\", branch = \"b\", tag = \"c\" }", []expected{{2, 42, Error, CodeConflict, "tag", "keep one"}}},
		{"editable without a path", "[pypi-dependencies]\na = { version = \"*\", editable = true }", []expected{{2, 22, Error, CodeConflict, "editable", "path ="}}},
		{"an index without a version", "[pypi-dependencies]\na = { url = \"https://h/a.whl\", index = \"https://h/\" }", []expected{{2, 32, Error, CodeConflict, "index", `version = "*"`}}},
		{"git's short address", "[pypi-dependencies]\na = { git = \"git@github.com:a/b.git\" }", []expected{{2, 13, Error, CodeURL, `"git@github.com:a/b.git"`, `"ssh://git@github.com/a/b.git"`}}},
		{"pip's form of a repository", "[pypi-dependencies]\na = \"git+https://h/a.git\"", []expected{{2, 5, Error, CodePyPIVersion, `"git+https://h/a.git"`, `a = { git = "https://h/a.git" }`}}},
		{"an address without a host", "[pypi-dependencies]\na = { url = \"https:///a.whl\" }", []expected{{2, 13, Error, CodeURL, `"https:///a.whl"`, "https://host/path"}}},
		{"a marker as other tools name it", "[pypi-dependencies]\na = { version = \"*\", markers = \"os_name == 'nt'\" }", []expected{{2, 22, Error, CodeUnknownKey, "markers", "write env-markers"}}},
		{"a marker with a misspelt variable", "[pypi-dependencies]\na = { version = \"*\", env-markers = \"sys_plattform == 'linux'\" }", []expected{{2, 37, Error, CodeMarker, "sys_plattform", "sys_platform == 'linux'"}}},
		{"a conda key", "[pypi-dependencies]\na = { version = \"*\", channel = \"b\" }", []expected{{2, 22, Error, CodeUnknownKey, "channel", "[dependencies]"}}},
		{"one package in two spellings", "[pypi-dependencies]\nhf_xet = \"*\"\nhf-xet = \">=1\"", []expected{{3, 1, Error, CodeDuplicate, "hf-xet", "keep one"}}},
		{"one package in two spellings that say the same", "[pypi-dependencies]\nhf_xet = \"*\"\nhf-xet = \"*\"", []expected{{3, 1, Warning, CodeDuplicate, "hf-xet", "remove this line"}}},
		{"a version that is a number", "[pypi-dependencies]\nnumpy = 1.26", []expected{{2, 9, Error, CodeType, "1.26", `numpy = "==1.26"`}}},
		{"a version in the key", "[pypi-dependencies]\n\"numpy>=1\" = \"*\"", []expected{{2, 1, Error, CodePackageName, `"numpy>=1"`, `numpy = ">=1"`}}},
		{"extras that are one text", "[pypi-dependencies]\na = { version = \"*\", extras = [\"b,c\"] }", []expected{{2, 32, Error, CodeExtras, `"b,c"`, `["one", "two"]`}}},
		{"a package of another platform", "[pypi-dependencies]\ntriton-windows = \"*\"", []expected{{2, 1, Error, CodePlatformCannot, "triton-windows", "[target.win.pypi-dependencies]"}}},
		{"a package of another platform, where it belongs", "[target.win-64.pypi-dependencies]\ntriton-windows = \"*\"", nil},
		{"a wheel of another platform", "[pypi-dependencies]\na = { url = \"https://h/a-1-cp312-cp312-win_amd64.whl\" }", []expected{{2, 1, Error, CodePlatformCannot, "a", "[target.win.pypi-dependencies]"}}},
		{"a conda channel in the key", "[dependencies]\n\"conda-forge::numpy\" = \"*\"", []expected{{2, 1, Error, CodePackageName, `"conda-forge::numpy"`, `numpy = { version = "*", channel = "conda-forge" }`}}},
		{"an index among the conda packages", "[dependencies]\na = { version = \"*\", index = \"https://h/\" }", []expected{{2, 22, Error, CodeUnknownKey, "index", "[pypi-dependencies]"}}},

		{"a platform as other tools name it", "[target.windows.pypi-dependencies]\na = \"*\"", []expected{{1, 9, Error, CodePlatform, "windows", "write win"}}},
		{"a misspelt platform", "[target.linux-46.pypi-dependencies]\na = \"*\"", []expected{{1, 9, Error, CodePlatform, "linux-46", "write linux-64"}}},
		{"CUDA packages for one platform", "[target.linux-64.cuda]\npackages = [\"a\"]", []expected{{1, 18, Error, CodeMisplaced, "cuda", "move it to [cuda]"}}},
		{"variables for one platform", "[target.linux-64.env_vars]\nA = \"b\"", []expected{{1, 18, Error, CodeMisplaced, "env_vars", "[target.linux-64.activation.env]"}}},
		{"system requirements for one platform", "[target.linux-64.system-requirements]\nlibc = { family = \"glibc\", version = \"2.35\" }", []expected{{1, 18, Warning, CodeMisplaced, "system-requirements", "[system-requirements]"}}},
		{"a misspelt section of a platform", "[target.linux-64.pypi-dependncies]\na = \"=1\"", []expected{
			{1, 18, Error, CodeUnknownKey, "pypi-dependncies", "write pypi-dependencies"}, {2, 6, Error, CodePyPIVersion, "=1", `"==1"`}}},

		{"a generated key of the workspace", "[workspace]\nname = \"x\"\nplatforms = [\n  \"linux-64\",\n]", []expected{
			{2, 1, Error, CodeRefused, "name", "remove"}, {3, 1, Error, CodeRefused, "platforms", "remove"}}},
		{"a misspelt strategy", "[pypi-options]\nindex-strategy = \"first_index\"", []expected{{2, 19, Error, CodeValue, "first_index", `"first-index"`}}},
		{"links that are no list", "[pypi-options]\nfind-links = \"./wheels\"", []expected{{2, 14, Error, CodeType, `"./wheels"`, "find-links = ["}}},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, EnvironmentFile, c.content, c.want) })
	}
}

func TestWhatIsWrongInARootFileIsSaidWithItsPlaceAndRemedy(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          []expected
	}{
		{"packs under their old name", "[node_reqs]\nA = \"b\"", []expected{
			{1, 2, Error, CodeRetired, "node_reqs", "write [node_packs]"}, {2, 5, Error, CodeNodePackSource, `"b"`, `"owner/name"`}}},
		{"an environment's section", "[dependencies]\nffmpeg = \"*\"", []expected{{1, 2, Error, CodeMisplaced, "dependencies", "nodes/comfy-env.toml"}}},
		{"an environment's key", "python = \"3.11\"", []expected{{1, 1, Error, CodeMisplaced, "python", "nodes/comfy-env.toml"}}},
		{"settings", "[settings]\nisolate = false", []expected{{1, 2, Error, CodeRetired, "settings", "remove"}}},
		{"serializers", "[serializers]\nA = \"b\"", []expected{{1, 2, Error, CodeRetired, "serializers", `TYPE = "custom"`}}},
		{"system packages", "[apt]\npackages = [\"libgl1\"]", []expected{{1, 2, Error, CodeRetired, "apt", `libgl = "*"`}}},
		{"a misspelt section", "[node_pack]\nA = \"b/c\"", []expected{{1, 2, Error, CodeUnknownTable, "node_pack", "write [node_packs]"}}},
		{"an unknown section", "[whatever]", []expected{{1, 2, Error, CodeUnknownTable, "whatever", "[node_packs] and [types]"}}},
		{"a misspelt mode", "[types]\nMESH = \"costum\"", []expected{{2, 9, Error, CodeValue, "costum", `write "custom"`}}},
		{"a mode that is a boolean", "[types]\nMESH = true", []expected{{2, 8, Error, CodeType, "true", `MESH = "custom"`}}},
		{"a pack from nowhere", "[node_packs]\nA = { tag = \"v1\" }", []expected{{2, 1, Error, CodeNodePackSource, "A", "github ="}}},
		{"two revisions", "[node_packs]\nA = { github = \"a/b\", tag = \"v1\", branch = \"c\" }", []expected{{2, 35, Error, CodeConflict, "branch", "keep one"}}},
		{"a pack's misspelt key", "[node_packs]\nA = { github = \"a/b\", tga = \"v1\" }", []expected{{2, 23, Warning, CodeUnknownKey, "tga", "write tag"}}},
		{"a commit that is none", "[node_packs]\nA = { github = \"a/b\", commit = \"latest\" }", []expected{{2, 32, Error, CodeValue, `"latest"`, "hash"}}},
		{"a pack that is a number", "[node_packs]\nA = 1", []expected{{2, 5, Error, CodeType, "1", "owner/name"}}},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, RootFile, c.content, c.want) })
	}
}

func TestSyntaxErrorsDoNotHideEachOtherOrTheRest(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          []expected
	}{
		{"a value without quotes", "[pypi-dependencies]\nnumpy = >=1.2 # here\nscipy = \"=1\"", []expected{
			{2, 9, Error, CodeSyntax, ">=1.2", `write ">=1.2"`}, {3, 10, Error, CodePyPIVersion, "=1", `"==1"`}}},
		{"a version that looks like a number", "python = 3.11.2", []expected{{1, 10, Error, CodeSyntax, "3.11.2", `write "3.11.2"`}}},
		{"typographic quotes", "python = “3.11”", []expected{{1, 10, Error, CodeSyntax, "“3.11”", `write "3.11"`}}},
		{"Python's booleans", "[pypi-options]\nno-build = True", []expected{{2, 12, Error, CodeSyntax, "True", "write true"}}},
		{"Python's None", "python = None", []expected{{1, 10, Error, CodeSyntax, "None", "remove the line"}}},
		{"no value", "python =\n", []expected{{1, 1, Error, CodeSyntax, "python =", `behind the "="`}}},
		{"extras in the key", "[pypi-dependencies]\ntrimesh[easy, fast] = \">=4\"\nscipy = \"=1\"", []expected{
			{2, 8, Error, CodeSyntax, "[easy, fast]", `trimesh = { version = ">=4", extras = ["easy", "fast"] }`}, {3, 10, Error, CodePyPIVersion, "=1", `"==1"`}}},
		{"two statements on a line", "[brew]   packages = [\"ffmpeg\"]", []expected{
			{1, 2, Error, CodeRetired, "brew", `ffmpeg = "*"`}, {1, 10, Error, CodeSyntax, `packages = ["ffmpeg"]`, "start a new line"}}},
		{"an unclosed header", "[cuda\npackages = [\"torch\"]", []expected{{1, 1, Error, CodeSyntax, "[cuda", "write [cuda]"}, {2, 13, Warning, CodeTorchCUDA, `"torch"`, "remove"}}},
		{"a header with spaces", "[pypi dependencies]\nnumpy = \"=1\"", []expected{{1, 1, Error, CodeSyntax, "[pypi dependencies]", "write [pypi-dependencies]"}, {2, 10, Error, CodePyPIVersion, "=1", `"==1"`}}},
		{"an unclosed list before a section", "[cuda]\npackages = [\"a\",\n\"b\"\n\n[env_vars]\nPYTHONHOME = \"x\"", []expected{
			{2, 12, Error, CodeSyntax, `["a",`, "close it with ]"}, {6, 1, Error, CodeEnvVarBreaks, "PYTHONHOME", "remove"}}},
		{"an unclosed string", "python = \"3.11\n[env_vars]\nPYTHONHOME = \"x\"", []expected{
			{1, 10, Error, CodeSyntax, `"3.11`, "close it with a quote"}, {3, 1, Error, CodeEnvVarBreaks, "PYTHONHOME", "remove"}}},
		{"an unclosed long string", "a = \"\"\"x\ny", []expected{{1, 5, Error, CodeSyntax, `"""x`, "three quotes"}}},
		{"a line of prose", "python = \"3.11\"\nthis is no TOML\n[env_vars]\nPYTHONHOME = \"x\"", []expected{
			{2, 6, Error, CodeSyntax, "i", "write key = "}, {4, 1, Error, CodeEnvVarBreaks, "PYTHONHOME", "remove"}}},
		{"a backslash in a path", "[env_vars]\nA = \"C:\\Users\"", []expected{{2, 8, Error, CodeSyntax, `\Users"`, "single quotes"}}},
		{"a key twice", "[pypi-dependencies]\na = \">=1\"\na = \"*\"", []expected{{3, 1, Error, CodeDuplicateKey, "a", "keep one"}}},
		{"a section twice", "[cuda]\n[cuda]", []expected{{2, 2, Error, CodeDuplicateKey, "cuda", "join the two"}}},
		{"a section in a value", "cuda = {}\n[cuda.x]", []expected{{2, 2, Error, CodeDuplicateKey, "cuda", "join the two"}}},
		{"a number that is too large", "[options]\nreap = 99999999999999999999", []expected{
			{2, 8, Error, CodeSyntax, "99999999999999999999", "smaller"}, {2, 8, Error, CodeRange, "99999999999999999999", "reap"}}},
		{"a carriage return alone", "a = 1\rb = 2", []expected{{1, 1, Error, CodeUnknownTable, "a", "known"}, {1, 6, Error, CodeSyntax, "\r", "LF or CRLF"}, {1, 7, Error, CodeUnknownTable, "b", "known"}}},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, EnvironmentFile, c.content, c.want) })
	}
}

func TestOnMacOSTheCUDAPackagesAreSaidToBeSkipped(t *testing.T) {
	_, diagnostics := ParseFor("osx-arm64", EnvironmentFile, []byte("[cuda]\npackages = [\"flash-attn\"]\n"))
	if len(diagnostics) != 1 || diagnostics[0].Severity != Note || diagnostics[0].Code != CodePlatformCannot || diagnostics[0].Line != 1 {
		t.Errorf("said is\n%s", verdict("", diagnostics))
	}
}

func TestColumnsCountCharactersAndEveryLineEndCounts(t *testing.T) {
	expect(t, EnvironmentFile, "# ═══ Überschrift\r\n[pypi-dependencies]\r\n\"ünïcode\" = \"*\"; x\r\n", []expected{
		{3, 1, Error, CodePackageName, `"ünïcode"`, "name ="}, {3, 16, Error, CodeSyntax, ";", "remove what follows"}})
	expect(t, EnvironmentFile, "[env_vars]\nA = \"日本語 $HOME\"", []expected{{2, 10, Warning, CodeEnvVarBreaks, "$HOME", "value itself"}})
}

func TestOddEncodingsAndVersionsAreToldApart(t *testing.T) {
	utf16 := func(text string, mark bool) string {
		var out strings.Builder
		if mark {
			out.WriteString("\xff\xfe")
		}
		for _, r := range text {
			out.WriteByte(byte(r))
			out.WriteByte(byte(r >> 8))
		}
		return out.String()
	}
	for _, c := range []struct {
		name, content string
		want          expected
	}{
		{"a byte order mark", "\xef\xbb\xbfpython = \"3.11\"", expected{1, 1, Warning, CodeEncoding, "p", "without a mark"}},
		{"a byte order mark alone", "\xef\xbb\xbf", expected{1, 1, Warning, CodeEncoding, "", "without a mark"}},
		{"UTF-16 with a mark", utf16("python = \"3.11\"", true), expected{1, 1, Error, CodeEncoding, "\xff\xfe", "save it as UTF-8"}},
		{"UTF-16 without a mark", utf16("python = \"3.11\"", false), expected{1, 1, Error, CodeEncoding, "p\x00", "save it as UTF-8"}},
		{"UTF-32", "\xff\xfe\x00\x00p\x00\x00\x00", expected{1, 1, Error, CodeEncoding, "\xff\xfe", "save it as UTF-8"}},
		{"a NUL byte", "python = \"3.1\x001\"", expected{1, 14, Error, CodeEncoding, "\x00", "anew"}},
		{"Latin-1", "# caf\xe9", expected{1, 6, Error, CodeEncoding, "\xe9", "UTF-8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got := Parse(EnvironmentFile, []byte(c.content))
			if len(got) != 1 || !c.want.matches(got[0]) {
				t.Errorf("got %s, want %+v", fmt.Sprintf("%+v", got), c.want)
			}
		})
	}
	for text, want := range map[string]string{"3.11": "3.11", "3.11.9": "3.11.9", "==3.11.*": "3.11", "=3.12": "3.12", "cp312": "", ">=3.11": "", "3.9": ""} {
		if m, _ := Parse(EnvironmentFile, []byte("python = \""+text+"\"")); m.Python != want {
			t.Errorf("python = %q is taken for %q, want %q", text, m.Python, want)
		}
	}
	m, _ := Parse(EnvironmentFile, []byte("\xef\xbb\xbfpython = \"3.11\""))
	if m.Python != "3.11" {
		t.Errorf("behind a byte order mark python is %q", m.Python)
	}
}
