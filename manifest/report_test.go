package manifest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestADiagnosticShowsTheLineWithTheTextUnderlined(t *testing.T) {
	const content = "[env_vars]\nA = \"日本語 $HOME/x\"\n"
	_, diagnostics := Parse("pack/nodes/comfy-env.toml", []byte(content))
	var out strings.Builder
	for _, d := range diagnostics {
		if err := (Style{}).Write(&out, d); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Join([]string{
		`warning[env-var-breaks-worker]: $HOME is not expanded`,
		`  --> pack/nodes/comfy-env.toml:2:10`,
		`  |`,
		`2 | A = "日本語 $HOME/x"`,
		`  |             ^^^^^`, // three characters of two columns each
		`  = why: the worker gets the text as it stands here`,
		`  = fix: write the value itself, or the line below [activation.env]`,
		``,
	}, "\n")
	if difference := cmp.Diff(want, out.String()); difference != "" {
		t.Errorf("-want +got:\n%s", difference)
	}
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	d := Diagnostic{File: "f", Position: Position{1, 1}, Length: 1, Severity: Error, Code: CodeSyntax, Message: "m", Fix: "f", Source: "x"}
	var plain, coloured strings.Builder
	if err := (Style{}).Write(&plain, d); err != nil {
		t.Fatal(err)
	}
	if err := (Style{Color: true}).Write(&coloured, d); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(coloured.String(), "\x1b[1;31m") {
		t.Errorf("plain %q, coloured %q", plain.String(), coloured.String())
	}
}

func TestAFileCanNotReachTheTerminalThroughADiagnostic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("a \x1b\x07\x00\u202e\u200b\u009bé日🎉\t"))).Draw(t, "text")
		d := Diagnostic{File: text, Position: Position{Line: 1, Column: rapid.IntRange(1, len(text)+2).Draw(t, "column")}, Length: rapid.IntRange(1, 500).Draw(t, "length"),
			Severity: Error, Code: CodeSyntax, Message: text, Why: text, Fix: text, Source: text, Related: []Place{{File: text}}}
		var out strings.Builder
		if err := (Style{}).Write(&out, d); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && hidden(r) {
				t.Fatalf("%q reaches the terminal in %q", r, out.String())
			}
		}
	})
}

func TestLongLinesAreShownAroundTheText(t *testing.T) {
	source := strings.Repeat("a", 100000) + "HERE" + strings.Repeat("b", 100000)
	shown, before, width := window(source, 100001, 4)
	if len(shown) > 2*sourceWidth || width != 4 || shown[before:before+4] != "HERE" {
		t.Errorf("shown is %q, %d before, %d wide", shown, before, width)
	}
}

func TestReportsForMachinesHaveOneObjectAFile(t *testing.T) {
	folder := t.TempDir()
	tree(t, folder, "a/comfy-env.toml", "b/comfy-env-root.toml")
	file := filepath.Join(folder, "a", EnvironmentFile)
	if err := os.WriteFile(file, []byte("python = 3.10\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reports, err := Check("linux-64", []string{folder})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(JSON(reports))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`[{"file":%q,"ok":false,"diagnostics":[{"severity":"error","code":"python-unquoted","line":1,"column":10,"message":"python is the number 3.1, not a version: numbers lose their trailing zeros: 3.10 without quotes is 3.1","fix":"write python = \"3.10\""}]},{"file":%q,"ok":true,"diagnostics":[]}]`,
		file, filepath.Join(folder, "b", RootFile))
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if text, err := json.Marshal(JSON(nil)); err != nil || string(text) != "[]" {
		t.Errorf("no files are %s, %v", text, err)
	}
}

func TestCheckingFollowsThePathsItIsGiven(t *testing.T) {
	base := t.TempDir()
	tree(t, base, "comfyui/custom_nodes/ComfyUI-A/nodes/comfy-env.toml", "comfyui/custom_nodes/ComfyUI-A/comfy-env-root.toml", "comfyui/custom_nodes/a/nodes/comfy-env.toml",
		"comfyui/custom_nodes/B/comfy-env-root.toml", "comfyui/custom_nodes/_C/comfy-env-root.toml", "loose/deep/er/comfy-env.toml", "loose/.git/comfy-env.toml", "loose/dir/comfy-env.toml/", "none/x.txt")
	comfyui, loose := filepath.Join(base, "comfyui"), filepath.Join(base, "loose")
	nodes := filepath.Join(comfyui, "custom_nodes")
	for _, c := range []struct {
		name  string
		paths []string
		want  []string // file, and "!" before those that are refused
	}{
		{"a whole ComfyUI", []string{comfyui}, []string{nodes + "/B/comfy-env-root.toml", nodes + "/ComfyUI-A/comfy-env-root.toml", nodes + "/ComfyUI-A/nodes/comfy-env.toml", "!" + nodes + "/a/nodes/comfy-env.toml"}},
		{"a pack", []string{nodes + "/a"}, []string{nodes + "/a/nodes/comfy-env.toml"}},
		{"a file, named twice", []string{nodes + "/a/nodes/comfy-env.toml", nodes + "/a/../a/nodes/comfy-env.toml"}, []string{nodes + "/a/nodes/comfy-env.toml"}},
		{"any folder", []string{loose}, []string{loose + "/deep/er/comfy-env.toml", "!" + loose + "/dir/comfy-env.toml"}},
		{"a folder with the file's name", []string{loose + "/dir/comfy-env.toml"}, []string{"!" + loose + "/dir/comfy-env.toml"}},
		{"nothing to find", []string{filepath.Join(base, "none")}, nil},
	} {
		reports, err := Check("linux-64", c.paths)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var got []string
		for _, report := range reports {
			mark := ""
			if !report.OK() {
				mark = "!"
			}
			got = append(got, mark+filepath.ToSlash(report.File))
		}
		for i := range c.want {
			c.want[i] = filepath.ToSlash(c.want[i])
		}
		if difference := cmp.Diff(c.want, got); difference != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, difference)
		}
	}
	other := filepath.Join(base, "other")
	tree(t, other, "custom_nodes/ComfyUI-A/nodes/comfy-env.toml")
	reports, err := Check("linux-64", []string{filepath.Join(nodes, "ComfyUI-A"), other})
	if err != nil || len(reports) != 3 {
		t.Errorf("two installs give %v, %v", reports, err)
	}
	for _, report := range reports {
		if !report.OK() {
			t.Errorf("%s is refused for a pack that another install has too: %v", report.File, report.Diagnostics)
		}
	}
	reports, err = Check("linux-64", []string{filepath.Join(nodes, "ComfyUI-A"), filepath.Join(nodes, "a")})
	if err != nil || len(reports) != 3 || reports[2].OK() {
		t.Errorf("two packs of one install with one name give %v, %v", reports, err)
	}
	if _, err := Check("linux-64", []string{filepath.Join(base, "missing")}); err == nil {
		t.Error("a missing path is no error")
	}
}
