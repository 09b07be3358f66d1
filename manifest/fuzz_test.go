package manifest

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// FuzzParse holds what the package promises of any input: no panic, no hang, a place for every diagnostic, and
// fixing that ends without making things worse.
func FuzzParse(f *testing.F) {
	for _, file := range wild(f) {
		f.Add(strings.HasSuffix(file.Name, RootFile), file.Data)
	}
	for _, seed := range []string{"python = 3.10", "[a]\n[a.b]\n[[a.b.c]]", "a.b = { c = [1, { d = \"\\u00e9\" }] }", "\xef\xbb\xbf[cuda", "x = \"\"\"", "[pypi-dependencies]\na[b] = '*'", "\xff\xfea\x00"} {
		f.Add(false, []byte(seed))
		f.Add(true, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, root bool, content []byte) {
		file := EnvironmentFile
		if root {
			file = RootFile
		}
		m, diagnostics := ParseFor("linux-64", file, content)
		if m == nil {
			t.Fatal("there is no manifest")
		}
		checkDiagnostics(t, content, diagnostics)
		for _, d := range diagnostics {
			if err := (Style{}).Write(io.Discard, d); err != nil {
				t.Fatal(err)
			}
		}
		checkFix(t, file, content)
	})
}

func TestNoShapeOfManifestIsTooMuchToJudge(t *testing.T) {
	const size = 1 << 17 // what is more than linear would not end within the test's time
	repeat := func(unit string) string { return strings.Repeat(unit, size/len(unit)) }
	numbered := func(before, format string) string {
		var out strings.Builder
		out.WriteString(before)
		for i := 0; out.Len() < size; i++ {
			fmt.Fprintf(&out, format, i)
		}
		return out.String()
	}
	for name, content := range map[string]string{
		"many packages":                 numbered("[pypi-dependencies]\n", "package-%d = \">=1.0,<2\"\n"),
		"many wrong versions":           numbered("[pypi-dependencies]\n", "package-%d = \"=1.0\"\n"),
		"many wrong versions on a line": numbered("pypi-dependencies = { ", "p%d = \"=1\", "),
		"many unknown sections":         numbered("", "[section-%d]\n"),
		"many equal keys":               "[env_vars]\n" + repeat("A = \"b\"\n"),
		"many equal headers":            repeat("[cuda]\n"),
		"many lists of tables":          repeat("[[a.b]]\n"),
		"many syntax errors":            repeat("what is this\n"),
		"many carriage returns":         repeat("\r"),
		"one long version":              "[pypi-dependencies]\na = \"" + repeat(">=1,") + "\"",
		"one long wrong version":        "[pypi-dependencies]\na = \"" + repeat("=1,") + "\"",
		"one long conda version":        "[dependencies]\na = \"" + repeat(">1 ") + "\"",
		"one long marker":               "[pypi-dependencies]\na = { version = \"*\", env-markers = \"" + repeat("(os_name == 'a' or ") + "\" }",
		"one long name":                 "[" + repeat("a") + "]",
		"one long comment":              "# " + repeat("é"),
		"one long string with quotes":   "a = \"" + repeat("\\\"") + "\"",
		"one long list":                 "[cuda]\npackages = [" + numbered("", "\"torch-%d\", ") + "]",
		"one long list of torches":      "[cuda]\npackages = [" + repeat("\"torch\", ") + "]",
		"one long value without quotes": "a = " + repeat("b "),
		"deep lists":                    "a = " + repeat("["),
		"deep tables":                   "a = " + repeat("{a="),
		"a deep key":                    repeat("a.") + "a = 1",
		"variables with expansions":     "[env_vars]\nA = \"" + repeat("$A ") + "\"",
		"an unclosed string":            "a = \"\"\"" + repeat("a\n"),
		"nothing but newlines":          repeat("\n"),
		"nothing but brackets":          repeat("[\n"),
	} {
		start := time.Now()
		_, diagnostics := Parse(EnvironmentFile, []byte(content))
		for _, d := range diagnostics {
			if d.Line < 1 || d.Column < 1 {
				t.Errorf("%s: %q has no position", name, d.Message)
			}
			if err := (Style{}).Write(io.Discard, d); err != nil {
				t.Fatal(err)
			}
		}
		Fix("linux-64", EnvironmentFile, []byte(content))
		if testing.Verbose() {
			t.Logf("%s: %v, %d diagnostics", name, time.Since(start), len(diagnostics))
		}
	}
}

func TestAManifestOfAMegabyteIsJudged(t *testing.T) {
	var content strings.Builder
	content.WriteString("[pypi-dependencies]\n")
	for i := 0; content.Len() < 1<<20; i++ {
		fmt.Fprintf(&content, "package-%d = \">=1.0,<2\" # why\n", i)
	}
	m, diagnostics := Parse(EnvironmentFile, []byte(content.String()))
	if lines := strings.Count(content.String(), "\n"); len(m.PyPIDependencies) != lines-1 || len(diagnostics) > 0 {
		t.Errorf("of %d lines %d packages are understood, with %d diagnostics", lines, len(m.PyPIDependencies), len(diagnostics))
	}
	_, diagnostics = Parse(EnvironmentFile, []byte(strings.ReplaceAll(content.String(), ">=", "=")))
	if len(diagnostics) != maxDiagnostics+1 || diagnostics[maxDiagnostics].Code != CodeTooMany || !HasErrors(diagnostics[maxDiagnostics:]) {
		t.Errorf("of a wrong version on each line %d diagnostics are said", len(diagnostics))
	}
}

func BenchmarkParse(b *testing.B) {
	files := wild(b)
	largest := files[0]
	for _, file := range files {
		if len(file.Data) > len(largest.Data) {
			largest = file
		}
	}
	b.Run("largest", func(b *testing.B) {
		b.SetBytes(int64(len(largest.Data)))
		for b.Loop() {
			Parse(largest.Name, largest.Data)
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			for _, file := range files {
				Parse(file.Name, file.Data)
			}
		}
	})
}
