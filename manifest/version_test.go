package manifest

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// versionCase is a version of a package: nil for right, otherwise the offending part and what should stand there.
type versionCase struct {
	text    string
	at      string // the offending part; empty: the version is right
	replace string // the one right answer, if there is one
}

func checkVersions(t *testing.T, check func(string) *wrong, cases []versionCase) {
	t.Helper()
	for _, c := range cases {
		got := check(c.text)
		switch {
		case got == nil && c.at != "":
			t.Errorf("%q is accepted", c.text)
		case got == nil:
		case c.at == "":
			t.Errorf("%q is refused: %s", c.text, got.message)
		default:
			if at := c.text[min(got.at.start, len(c.text)):min(got.at.end, len(c.text))]; at != c.at {
				t.Errorf("%q: %q is pointed at, want %q (%s)", c.text, at, c.at, got.message)
			}
			if got.replace != c.replace {
				t.Errorf("%q: the remedy is %q, want %q (%s)", c.text, got.replace, c.replace, got.message)
			}
			if got.replace != "" && check(got.replace) != nil && !strings.Contains(c.text, ",") {
				t.Errorf("%q: the remedy %q is wrong too", c.text, got.replace)
			}
		}
	}
}

func TestPythonVersionsAreReadAsPEP440HasThem(t *testing.T) {
	checkVersions(t, checkSpecifiers, []versionCase{
		{text: "*"}, {text: " * "}, {text: ">=1.2"}, {text: ">= 1.2 , < 2"}, {text: "==1.2.*"}, {text: "!=1.*"}, {text: "~=1.4.2"},
		{text: "==1.0+cu128"}, {text: "===whatever"}, {text: "==1!2.0"}, {text: ">=2.0rc1"}, {text: ">=2.0-alpha.3"}, {text: "==2023.12.post3"},
		{text: "<2.dev0"}, {text: "==1.0-1"}, {text: "==v1.0"}, {text: ">=1.0.0.0.0"}, {text: "==1.0.RC.1.POST2.DEV3+Local-x_1"},

		{text: "=0.0.8", at: "=0.0.8", replace: "==0.0.8"},
		{text: "1.2", at: "1.2", replace: "==1.2"},
		{text: "1.2.*", at: "1.2.*", replace: "==1.2.*"},
		{text: "latest", at: "latest", replace: "*"},
		{text: ">=1.2,1.3", at: "1.3", replace: ">=1.2,==1.3"},
		{text: "=>1.2", at: "=>1.2", replace: ">=1.2"},
		{text: ">=1.2 <2", at: "<2", replace: ">=1.2,<2"},
		{text: ">=1.2,", at: ",", replace: ">=1.2"},
		{text: "^1.2.3", at: "^1.2.3", replace: ">=1.2.3,<2"},
		{text: "^0.2.3", at: "^0.2.3", replace: ">=0.2.3,<0.3"},
		{text: "~1.2.3", at: "~1.2.3", replace: ">=1.2.3,<1.3"},
		{text: "~1", at: "~1", replace: ">=1,<2"},
		{text: "==*", at: "==*", replace: "*"},
		{text: ">=1.2.*", at: ">=1.2.*", replace: ">=1.2"},
		{text: "~=1", at: "~=1"},
		{text: ">1.2.*", at: ">1.2.*"},
		{text: ">=1.0+local", at: ">=1.0+local"},
		{text: "==1.0rc1.*", at: "==1.0rc1.*"},
		{text: "==", at: "=="},
		{text: "=== ", at: "=== "},
		{text: ">=one", at: ">=one"},
		{text: "==1.2x", at: "1.2x"},
		{text: ">=1.2,,<2", at: ","},
		{text: ">=1; python_version<'3'", at: "; python_version<'3'"},
		{text: ">=1.2 || <2", at: "|| <2"},
		{text: "1.2 || 1.3", at: "1.2 || 1.3"},
	})
}

func TestCondaVersionsAreReadAsCondaHasThem(t *testing.T) {
	checkVersions(t, checkCondaVersion, []versionCase{
		{text: "*"}, {text: "1.2"}, {text: "1.2.*"}, {text: "1.2*"}, {text: "==1.2"}, {text: "=1.2"}, {text: ">=1.23,<2"}, {text: ">=1.2|<1"},
		{text: "(>=1,<2)|3.*"}, {text: "!=1.2"}, {text: "~=1.2"}, {text: "==2023.12.post3"}, {text: "1!2.0"}, {text: "=1.2.*"}, {text: "2024a"}, {text: ">= 1.2"},

		{text: "latest", at: "latest", replace: "*"},
		{text: "^4", at: "^4", replace: ">=4,<5"},
		{text: "~1.2.3", at: "~1.2.3", replace: ">=1.2.3,<1.3"},
		{text: ">=1 <2", at: "<2", replace: ">=1,<2"},
		{text: "1||2", at: "||", replace: "1|2"},
		{text: ">=1,", at: ","},
		{text: ">=1.2.*", at: ">=1.2.*", replace: ">=1.2"},
		{text: "(1", at: "("},
		{text: ">", at: ">"},
		{text: "1.2 py310_0", at: "py310_0"},
		{text: "1.2 {x}", at: "{x}"},
		{text: "1..2", at: "1..2"},
		{text: "newest-one", at: "newest-one"},
	})
}

func TestAnEmptyVersionIsRefused(t *testing.T) {
	for name, check := range map[string]func(string) *wrong{"PEP 440": checkSpecifiers, "conda": checkCondaVersion} {
		for _, text := range []string{"", " ", "\t"} {
			if got := check(text); got == nil || got.replace != "*" {
				t.Errorf("%s: %q gives %+v", name, text, got)
			}
		}
	}
}

func TestMarkersAreReadAsPEP508HasThem(t *testing.T) {
	checkVersions(t, checkMarker, []versionCase{
		{text: `sys_platform == "linux"`}, {text: `python_version >= '3.11' and (os_name == "nt" or extra == "x")`}, {text: `"linux" in sys_platform`},
		{text: `platform_machine not in "arm64 aarch64"`}, {text: `python_version~="3.10"`},

		{text: `sys_plattform == "linux"`, at: "sys_plattform", replace: `sys_platform == "linux"`},
		{text: `sys_platform = "linux"`, at: "="},
		{text: `sys_platform == linux`, at: "linux"},
		{text: `sys_platform == "linux`, at: `"linux`},
		{text: `sys_platform`, at: "m"},
		{text: `"a" == "b"`, at: `"a" == "b"`},
		{text: `(os_name == "nt"`, at: "("},
		{text: `os_name == "nt" or`, at: "r"},
		{text: `os_name not "nt"`, at: "not "},
		{text: `os_name == "nt" && extra == "x"`, at: `&& extra == "x"`},
		{text: strings.Repeat("(", 100) + `os_name == "nt"` + strings.Repeat(")", 100), at: "("},
	})
}

func TestRightVersionsStayRightWhereverSpacesStand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Custom(func(t *rapid.T) string {
			parts := rapid.SliceOfN(rapid.StringMatching(`[0-9]{1,4}`), 2, 4).Draw(t, "parts")
			return strings.Join(parts, ".") + rapid.SampledFrom([]string{"", "rc1", ".post2", ".dev3", "a1.post2.dev3"}).Draw(t, "suffix")
		})
		space := rapid.SampledFrom([]string{"", " ", "\t", "  "})
		var clauses []string
		for range rapid.IntRange(1, 5).Draw(t, "clauses") {
			operator := rapid.SampledFrom(pep440Operators).Draw(t, "operator")
			clauses = append(clauses, space.Draw(t, "before")+operator+space.Draw(t, "between")+number.Draw(t, "version")+space.Draw(t, "after"))
		}
		if text := strings.Join(clauses, ","); checkSpecifiers(text) != nil {
			t.Fatalf("%q is refused: %s", text, checkSpecifiers(text).message)
		}
	})
}

func TestNoTextOfAVersionIsTooOddToBeJudged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("0123456789.abcrpostdev+-_!*<>=~^,|()\"' \téx"))).Draw(t, "text")
		for name, check := range map[string]func(string) *wrong{"PEP 440": checkSpecifiers, "conda": checkCondaVersion, "marker": checkMarker} {
			got := check(text)
			if got == nil {
				continue
			}
			if got.at.start < 0 || got.at.end < got.at.start || got.at.end > len(text) {
				t.Errorf("%s: %q has the place %+v", name, text, got.at)
			}
			if got.message == "" || got.fix == "" && got.replace == "" {
				t.Errorf("%s: %q has message %q, fix %q, replacement %q", name, text, got.message, got.fix, got.replace)
			}
			if got.replace == text && text != "" {
				t.Errorf("%s: the remedy for %q is the same", name, text)
			}
		}
	})
}

func TestNamesOfPackagesAreComparedAsPEP503HasThem(t *testing.T) {
	for name, want := range map[string]string{
		"numpy": "numpy", "Pillow": "pillow", "hf_xet": "hf-xet", "zope.interface": "zope-interface", "A--b__c..d": "a-b-c-d", "a-_.b": "a-b", "comfy-aimdo": "comfy-aimdo",
	} {
		if got := NormalizeName(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,20}`).Draw(t, "name")
		once := NormalizeName(name)
		if twice := NormalizeName(once); twice != once {
			t.Fatalf("%s becomes %s, then %s", name, once, twice)
		}
	})
}

func TestTheNearestNameIsTheOneThatWasMeant(t *testing.T) {
	for text, want := range map[string]string{
		"dependancies": "dependencies", "pypi_dependencies": "pypi-dependencies", "Pypi-Dependencies": "pypi-dependencies", "evn_vars": "env_vars", "pyhton": "python",
		"environment_vars": "", "opts": "", "option": "options", "x": "", "": "", strings.Repeat("a", 100): "", "tartget": "target",
	} {
		if got := nearest(text, environmentKeys); got != want {
			t.Errorf("%q means %q, want %q", text, got, want)
		}
	}
}

func TestSizesAndDurationsKeepTheirMeaning(t *testing.T) {
	for text, want := range map[string]int64{"8GiB": 8 << 30, "8 gib": 8 << 30, "1.5MiB": 3 << 19, "2GB": 2e9, "0B": 0, "512kib": 512 << 10, "1TiB": 1 << 40} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "8", "GiB", "8 GiBs", "-1GiB", "1e400GiB", "9999999TiB", "NaNGiB", "8 G i B"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) is %d", text, got)
		}
	}
	for _, text := range []string{"", "0%", "-1%", "101%", "%", "NaN%", "0GiB", "40"} {
		if got, err := ParseAmount(text); err == nil {
			t.Errorf("ParseAmount(%q) is %v", text, got)
		}
	}
	for text, want := range map[string]string{"90": "1m30s", "90s": "1m30s", "1h30m": "1h30m0s", "0": "0s", "2.5": "2.5s", "1 h": "1h0m0s", "250ms": "250ms"} {
		if got, err := ParseDuration(text); err != nil || got.String() != want {
			t.Errorf("ParseDuration(%q) is %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1s", "soon", "1d", "9000h0m", "Inf", "NaN", "-0.1"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) is %v", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(1, 1<<52).Draw(t, "bytes")
		text := Amount{Bytes: bytes}.String()
		back, err := ParseAmount(text)
		if err != nil || back.Bytes != bytes {
			t.Fatalf("%d bytes are written %s and read %v, %v", bytes, text, back, err)
		}
	})
	kept := MemoryOptions{VRAM: &Amount{Bytes: 8 << 30}, RAM: &Amount{Percent: 40}}
	text, err := json.Marshal(kept)
	if err != nil || string(text) != `{"VRAM":"8GiB","PinnedRAM":null,"RAM":"40%"}` {
		t.Errorf("caps are kept as %s, %v", text, err)
	}
	var back MemoryOptions
	if err := json.Unmarshal(text, &back); err != nil || *back.VRAM != *kept.VRAM || *back.RAM != *kept.RAM || back.PinnedRAM != nil {
		t.Errorf("caps come back as %+v, %v", back, err)
	}
	if got := (Amount{Percent: 40}).Of(1000); got != 400 {
		t.Errorf("40%% of 1000 is %d", got)
	}
}
