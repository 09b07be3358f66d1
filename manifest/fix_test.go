package manifest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWhatHasOneRightAnswerIsFixedAndTheRestStays(t *testing.T) {
	for _, c := range []struct{ name, file, before, after string }{
		{"an unquoted version", EnvironmentFile, "python = 3.10 # ten\n", "python = \"3.10\" # ten\n"},
		{"misspelt keys and sections", EnvironmentFile, "[pypi-dependancies] # packages\nnumpy   =   \"=1.2\" # pinned\n\n[evn_vars]\nA = \"b\"\n",
			"[pypi-dependencies] # packages\nnumpy   =   \"==1.2\" # pinned\n\n[env_vars]\nA = \"b\"\n"},
		{"a section that is named in several headers", EnvironmentFile, "[target.windows.dependencies]\na = \"*\"\n[target.windows.pypi-dependencies]\nb = \"*\"\n",
			"[target.win.dependencies]\na = \"*\"\n[target.win.pypi-dependencies]\nb = \"*\"\n"},
		{"extras in a key, in a file with CRLF", EnvironmentFile, "[pypi-dependencies]\r\ntrimesh[easy] = \"*\"  # mesh\r\n", "[pypi-dependencies]\r\ntrimesh = { version = \"*\", extras = [\"easy\"] }  # mesh\r\n"},
		{"two statements on a line", EnvironmentFile, "[cuda]   packages = [\"a\"]\r\n", "[cuda]\r\npackages = [\"a\"]\r\n"},
		{"CUDA packages as keys", EnvironmentFile, "[cuda]\n# fast\nflash-attn = \"2.8.3\" # pinned\nspconv = \"*\"\n", "[cuda]\n# fast\npackages = [\"flash-attn==2.8.3\", \"spconv\"] # pinned\n"},
		{"torch in a list, first", EnvironmentFile, "[cuda]\npackages = [\"torch\", \"a\"]\n", "[cuda]\npackages = [\"a\"]\n"},
		{"torch in a list, last", EnvironmentFile, "[cuda]\npackages = [\n  \"a\",\n  \"torch\",\n]\n", "[cuda]\npackages = [\n  \"a\",\n]\n"},
		{"torch in a list, alone", EnvironmentFile, "[cuda]\npackages = [\"torch\"]\n", "[cuda]\npackages = []\n"},
		{"torch behind a comment stays", EnvironmentFile, "[cuda]\npackages = [\n  \"a\", # first\n  \"torch\",\n]\n", "[cuda]\npackages = [\n  \"a\", # first\n  \"torch\",\n]\n"},
		{"Python among the conda packages", EnvironmentFile, "[dependencies]\npython = \"3.11.*\"\nffmpeg = \"*\"\n", "python = \"3.11\"\n[dependencies]\nffmpeg = \"*\"\n"},
		{"lines that go", EnvironmentFile, "[env_vars]\nA = \"b\"\nPYTHONPATH = \"x\" # why\nC = \"d\"\n", "[env_vars]\nA = \"b\"\nC = \"d\"\n"},
		{"nothing inside an inline table goes", EnvironmentFile, "env_vars = { PYTHONPATH = \"x\", A = \"b\" }\n", "env_vars = { PYTHONPATH = \"x\", A = \"b\" }\n"},
		{"what the host decides stays", EnvironmentFile, "[pypi-dependencies]\ntorch = \"*\"\ncomfy-aimdo = \"*\"\n", "[pypi-dependencies]\ntorch = \"*\"\ncomfy-aimdo = \"*\"\n"},
		{"packs under their old name", RootFile, "[node_reqs]\nA = \"b/c\"\n", "[node_packs]\nA = \"b/c\"\n"},
		{"packs under both names stay", RootFile, "[node_reqs]\nA = \"b/c\"\n[node_packs]\nA = \"b/c\"\n", "[node_reqs]\nA = \"b/c\"\n[node_packs]\nA = \"b/c\"\n"},
		{"a byte order mark", EnvironmentFile, "\xef\xbb\xbfpython = 3.11\n", "python = \"3.11\"\n"},
		{"UTF-16", EnvironmentFile, "\xff\xfep\x00=\x003\x00", "p=3"},
		{"one mistake after the other", EnvironmentFile, "[pypi dependancies]\nnumpy = >= 1.2 <2\n", "[pypi-dependencies]\nnumpy = \">= 1.2,<2\"\n"},
		{"dotted keys keep their section", EnvironmentFile, "pypi-dependencies.\"trimesh[easy]\" = \"*\"\ncuda.flash-attn = \"*\"\n", "pypi-dependencies.trimesh = { version = \"*\", extras = [\"easy\"] }\ncuda.flash-attn = \"*\"\n"},
		{"a misspelt key with a wrong value keeps having no effect", EnvironmentFile, "[options]\nreaps = \"soon\"\nstarts = \"5s\"\n", "[options]\nreaps = \"soon\"\nstart = \"5s\"\n"},
		{"equal lines", EnvironmentFile, "[dependencies]\nav = \"*\"\nffmpeg = \"*\"\nav = \"*\"\n", "[dependencies]\nav = \"*\"\nffmpeg = \"*\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := Fix("linux-64", c.file, []byte(c.before))
			if string(got) != c.after {
				t.Errorf("it becomes\n%q, want\n%q", got, c.after)
			}
		})
	}
}

var comment = regexp.MustCompile(`#[^"'\r\n]*`)

// checkFix holds what fixing promises: it ends, nothing gets worse, no comment of a line that stays is lost.
func checkFix(t complainer, file string, content []byte) {
	t.Helper()
	fixed, done := Fix("linux-64", file, content)
	again, more := Fix("linux-64", file, fixed)
	if !bytes.Equal(fixed, again) {
		t.Errorf("fixing twice changes more: %d then %d mistakes of\n%q", len(done), len(more), content)
	}
	_, before := ParseFor("linux-64", file, content)
	_, after := ParseFor("linux-64", file, fixed)
	if len(before) == 0 && !bytes.Equal(fixed, content) {
		t.Errorf("without a mistake it changes\n%q to\n%q", content, fixed)
	}
	if !HasErrors(before) && HasErrors(after) {
		t.Errorf("fixing refuses what was accepted:\n%q becomes\n%q\n%s", content, fixed, verdict(file, after))
	}
}

func TestFixingTheWildKeepsItsCommentsAndEnds(t *testing.T) {
	for _, file := range wild(t) {
		checkFix(t, file.Name, file.Data)
		fixed, _ := Fix("linux-64", file.Name, file.Data)
		kept := comment.FindAllString(string(fixed), -1)
		for _, one := range comment.FindAllString(string(file.Data), -1) {
			if !slices.Contains(kept, one) {
				t.Errorf("%s loses the comment %q", file.Name, one)
			}
		}
	}
}

// brokenManifest is a wild manifest with a few pieces of others in it.
func brokenManifest(t *rapid.T, files [][]byte) []byte {
	content := bytes.Clone(rapid.SampledFrom(files).Draw(t, "file"))
	pieces := []string{"=", "[", "]", "\"", "\n", "{", "}", ",", "python = 3.1\n", "[node_reqs]\n", "[cuda]\n", "torch", "==", "\x00", "\xff", "é", "#", ".", "[[a]]\n", "'", "\r", "=1", "target.windows.", "\"\"\""}
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		at := rapid.IntRange(0, len(content)).Draw(t, "at")
		end := min(len(content), at+rapid.IntRange(0, 12).Draw(t, "cut"))
		content = slices.Concat(content[:at], []byte(rapid.SampledFrom(pieces).Draw(t, "piece")), content[end:])
	}
	return content
}

func TestFixingBrokenManifestsEndsAndNeverMakesThemWorse(t *testing.T) {
	var files [][]byte
	for _, file := range wild(t) {
		files = append(files, file.Data)
	}
	rapid.Check(t, func(rt *rapid.T) {
		content := brokenManifest(rt, files)
		name := rapid.SampledFrom([]string{EnvironmentFile, RootFile}).Draw(rt, "name")
		_, diagnostics := ParseFor("linux-64", name, content)
		checkDiagnostics(rt, content, diagnostics)
		checkFix(rt, name, content)
	})
}

func TestRewritingKeepsPermissionsAndLinks(t *testing.T) {
	folder := t.TempDir()
	file, link := filepath.Join(folder, EnvironmentFile), filepath.Join(folder, "link.toml")
	if err := os.WriteFile(file, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(EnvironmentFile, link); err != nil {
		t.Skipf("this system makes no links: %v", err)
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Rewrite(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	after, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	if after.Mode() != before.Mode() {
		t.Errorf("the mode was %v and is %v", before.Mode(), after.Mode())
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "new" {
		t.Errorf("the file holds %q, %v", content, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if err := Rewrite(filepath.Join(folder, "missing"), nil); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("rewriting a missing file: %v", err)
	}
}

func TestTheStarterIsValidAndSoIsEveryLineItOffers(t *testing.T) {
	offered := regexp.MustCompile(`(?m)^# ((\[[a-z]|[a-zA-Z_-]+ = ).*)$`)
	for root, file := range map[bool]string{false: EnvironmentFile, true: RootFile} {
		content := StarterFor(root)
		if _, diagnostics := ParseFor("linux-64", file, content); len(diagnostics) > 0 {
			t.Errorf("%s has diagnostics:\n%s", file, verdict(file, diagnostics))
		}
		all := offered.ReplaceAll(content, []byte("$1"))
		if bytes.Equal(all, content) {
			t.Errorf("%s offers nothing", file)
		}
		m, diagnostics := ParseFor("linux-64", file, all)
		if len(diagnostics) > 0 {
			t.Errorf("%s, with all it offers, has diagnostics:\n%s\n%s", file, verdict(file, diagnostics), all)
		}
		if !root && (len(m.PyPIDependencies) != 4 || m.Options.Memory.VRAM == nil || len(m.Targets) != 2) {
			t.Errorf("%s, with all it offers, is understood as %+v", file, m)
		}
	}
}

func TestAStarterIsWrittenWhereManifestsAreLookedFor(t *testing.T) {
	pack := filepath.Join(t.TempDir(), "ComfyUI-Sample")
	if err := os.MkdirAll(filepath.Join(pack, "nodes", "gpu"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		folder string
		root   bool
		want   string
	}{
		{pack, false, filepath.Join(pack, "nodes", EnvironmentFile)},
		{filepath.Join(pack, "nodes", "gpu"), false, filepath.Join(pack, "nodes", "gpu", EnvironmentFile)},
		{pack, true, filepath.Join(pack, RootFile)},
	} {
		file, err := WriteStarter(c.folder, c.root)
		if err != nil || file != c.want {
			t.Errorf("in %s it is %s, %v; want %s", c.folder, file, err, c.want)
		}
		if _, err := WriteStarter(c.folder, c.root); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second one in %s: %v", c.folder, err)
		}
	}
	found, problems := Discover(pack)
	if len(found) != 2 || len(problems) > 0 {
		t.Errorf("found are %v, problems %v", found, problems)
	}
	for _, c := range []struct {
		folder string
		root   bool
	}{{t.TempDir(), false}, {filepath.Join(pack, "missing"), false}, {filepath.Join(pack, "nodes"), true}} {
		if file, err := WriteStarter(c.folder, c.root); err == nil {
			t.Errorf("in %s it is %s", c.folder, file)
		}
	}
}
