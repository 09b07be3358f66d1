package manifest

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"pgregory.net/rapid"
)

// drawTOML makes texts that are TOML or nearly so, in which keys and tables meet each other often.
func drawTOML(t *rapid.T) string {
	name := rapid.SampledFrom([]string{"a", "b", "c", `"a"`, "a.b", "b.c", "a.b.c", " a . b "})
	value := rapid.SampledFrom([]string{"1", `"x"`, "true", "1.5", "[1, 2]", "{}", "{ a = 1 }", "{ b.c = 1, b.d = 2 }", "[{ a = 1 }, { a = 2 }]", "[[]]", `"\u00e9\n"`, "'''x\ny'''", "0x1F", "1_000", "[\n1, # c\n]"})
	line := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0, 1:
			return "[" + name.Draw(t, "table") + "]"
		case 2:
			return "[[" + name.Draw(t, "list") + "]]"
		case 3:
			return "# comment"
		default:
			return name.Draw(t, "key") + " = " + value.Draw(t, "value")
		}
	})
	return strings.Join(rapid.SliceOfN(line, 0, 12).Draw(t, "lines"), rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end"))
}

func TestADocumentIsReadAsTheTOMLLibraryReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawTOML(t)
		want := map[string]any{}
		err := toml.Unmarshal([]byte(text), &want)
		doc := readDocument([]byte(text))
		if (err == nil) != (len(doc.problems) == 0) {
			t.Fatalf("the library says %v, the reader %+v, about:\n%s", err, doc.problems, text)
		}
		if err != nil {
			return
		}
		if difference := cmp.Diff(want, plainTable(doc.root)); difference != "" {
			t.Fatalf("of\n%s\n(-library +reader):\n%s", text, difference)
		}
	})
}

func TestManifestsOfTheWildAreReadAsTheTOMLLibraryReadsThem(t *testing.T) {
	for _, file := range wild(t) {
		want := map[string]any{}
		err := toml.Unmarshal(file.Data, &want)
		doc := readDocument(file.Data)
		if (err == nil) != (len(doc.problems) == 0) {
			t.Errorf("%s: the library says %v, the reader %+v", file.Name, err, doc.problems)
		}
		if err != nil {
			continue
		}
		if difference := cmp.Diff(want, plainTable(doc.root)); difference != "" {
			t.Errorf("%s (-library +reader):\n%s", file.Name, difference)
		}
	}
}

func TestEveryKeyAndValueKnowsItsPlace(t *testing.T) {
	const text = "top = 1\n[a.b]\nkey = \"value\" # comment\nlist = [\n  1,\n  { x = 2 },\n]\n'quoted'.dotted = { y = [3] }\n"
	doc := readDocument([]byte(text))
	b := doc.root.get("a").value.table.get("b").value.table
	at := func(s span) string { return text[s.start:s.end] }
	for _, c := range []struct{ name, got, want string }{
		{"a key", at(doc.root.get("top").key), "top"},
		{"a header's last part", at(doc.root.get("a").value.table.get("b").key), "b"},
		{"a value", at(b.get("key").value.span), `"value"`},
		{"a key with its value", at(b.get("key").whole), `key = "value"`},
		{"a list", at(b.get("list").value.span), "[\n  1,\n  { x = 2 },\n]"},
		{"an item", at(b.get("list").value.items[0].span), "1"},
		{"a quoted key", at(b.get("quoted").key), "'quoted'"},
		{"the last part of a dotted key", at(b.get("quoted").value.table.get("dotted").key), "dotted"},
		{"an inline table", at(b.get("quoted").value.table.get("dotted").value.span), "{ y = [3] }"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.name, c.got, c.want)
		}
	}
}

func TestPositionsAreThoseACountFindsHoweverLongTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"a", "é", "日", "a\n", "é\r\n", "aé日🎉"})
		var text strings.Builder
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			text.WriteString(strings.Repeat(unit.Draw(t, "unit"), rapid.IntRange(1, 3000).Draw(t, "times")))
		}
		content := []byte(text.String())
		l := newLines(content)
		for range 20 {
			offset := rapid.IntRange(0, len(content)).Draw(t, "offset")
			for offset < len(content) && !utf8.RuneStart(content[offset]) {
				offset--
			}
			before := content[:offset]
			want := Position{Line: bytes.Count(before, []byte{'\n'}) + 1, Column: utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1}
			if got := l.position(offset); got != want {
				t.Fatalf("offset %d of %d is at %+v, a count finds %+v", offset, len(content), got, want)
			}
		}
	})
}

func TestNestingIsBoundedAndSaid(t *testing.T) {
	for name, content := range map[string]string{
		"lists":           "a = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"inline tables":   "a = " + strings.Repeat("{ a = ", 5000) + "1" + strings.Repeat(" }", 5000),
		"a dotted key":    strings.Repeat("a.", 5000) + "a = 1",
		"a header":        "[" + strings.Repeat("a.", 5000) + "a]\nx = 1",
		"a list's header": "[[" + strings.Repeat("a.", 5000) + "a]]\nx = 1",
		"beyond TOML":     "a = " + strings.Repeat("[", 500000),
	} {
		_, diagnostics := Parse(EnvironmentFile, []byte(content))
		if !HasErrors(diagnostics) {
			t.Errorf("%s: nothing is said", name)
		}
		checkDiagnostics(t, []byte(content), diagnostics)
	}
}
