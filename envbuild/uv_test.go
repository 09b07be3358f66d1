package envbuild

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestUVIsTheOneOfTheSettingsThenPathThenTheHosts(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the tools are scripts")
	}
	folder := t.TempDir()
	script := func(name, answer string) string {
		path := filepath.Join(folder, name, "uv")
		writeProgram(t, path, "#!/bin/sh\n"+answer+"\n")
		return path
	}
	setting, onPath, hosts := script("setting", "echo uv 0.13.1"), script("path", "echo 'uv 0.13.2 (abc 2026)'"), script("host/bin", "echo uv 0.13.3")
	old, broken, foreign := script("old", "echo uv 0.4.0"), script("broken", "echo no library >&2; exit 127"), script("foreign", "echo micro version 1")
	host := PythonFacts{Executable: filepath.Join(folder, "host", "bin", "python")}
	var said []string
	say := func(format string, arguments ...any) { said = append(said, fmt.Sprintf(format, arguments...)) }
	find := func(setting string, host PythonFacts, path ...string) (tool, error) {
		said = nil
		return findUV(t.Context(), toolSearch{setting: setting, host: host, cache: filepath.Join(folder, "cache"), say: say,
			environ: []string{"PATH=" + strings.Join(path, string(os.PathListSeparator))}})
	}
	for _, one := range []struct {
		setting string
		path    []string
		want    string
	}{
		{setting, []string{filepath.Dir(onPath)}, setting},
		{"", []string{filepath.Dir(onPath)}, onPath},
		{"", nil, hosts},
		{"", []string{filepath.Dir(old), filepath.Dir(onPath)}, onPath},
		{"", []string{filepath.Dir(broken), filepath.Dir(foreign)}, hosts},
	} {
		if got, err := find(one.setting, host, one.path...); err != nil || got.Path != one.want {
			t.Errorf("%+v: %+v %v", one, got, err)
		}
	}
	if _, err := find("", host, filepath.Dir(old)); err != nil || len(said) != 1 || !strings.Contains(said[0], "is uv 0.4.0; "+uvMinimum) {
		t.Errorf("an old one is passed over in silence: %q %v", said, err)
	}
	if _, err := find(old, host, filepath.Dir(onPath)); err == nil || !strings.Contains(err.Error(), "the settings") {
		t.Errorf("the setting's own uv is too old and another was taken: %v", err)
	}
	if _, err := find("", PythonFacts{}); !errors.Is(err, errNoPip) {
		t.Errorf("no uv and no pip: %v", err)
	}
}

func TestAFetchedUVIsTheOneWhoseHashIsInTheSource(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	search := toolSearch{cache: cache, environ: os.Environ(), host: PythonFacts{Executable: needPython(t, "")}, say: t.Logf}
	target := fetchedUV(cache)
	if err := fetchUV(t.Context(), search, target); err != nil {
		t.Fatal(err)
	}
	if version, err := search.uv().version(t.Context(), target); err != nil || version != uvVersion {
		t.Errorf("%q %v", version, err)
	}
	left, err := os.ReadDir(filepath.Dir(target))
	if err != nil || len(left) != 2 { // the tool and its lock
		t.Errorf("left %v %v", left, err)
	}
}

func TestAWheelOfUVWithAnotherHashIsNotUsed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, content := makeWheel("uv", uvVersion, "py3-none-any", nil, "uv-"+uvVersion+".data/scripts/uv", "#!/bin/sh\necho uv "+uvVersion+"\n")
	writeFile(t, filepath.Join(folder, file), string(content))
	target := filepath.Join(folder, "tools", "uv")
	if err := unpackUV(filepath.Join(folder, file), target); err == nil || !strings.Contains(err.Error(), "is not used") {
		t.Errorf("%v", err)
	}
	if exists(target) {
		t.Error("it was unpacked")
	}
	// pip refuses it already: an index that offers another wheel under that name.
	m := newMachine(t)
	m.index.add("simple", file, content)
	search := toolSearch{cache: folder, host: PythonFacts{Executable: needPython(t, "")}, say: t.Logf,
		environ: append(m.environ, "PIP_CONFIG_FILE="+os.DevNull, "PIP_INDEX_URL="+m.index.defaultIndex(), "PIP_NO_CACHE_DIR=1")}
	err := fetchUV(t.Context(), search, fetchedUV(folder))
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "hash") || exists(fetchedUV(folder)) {
		t.Errorf("%v", err)
	}
}

func TestUVsReasonIsShortenedToWhatMatters(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"Using CPython 3.12.1\nerror: No solution found when resolving dependencies\n  cause: Because a was not found in the package registry and pack-x depends on a,\n      we can conclude that your requirements are unsatisfiable.\n":                                                         "No solution found when resolving dependencies; Because a was not found in the package registry and pack-x depends on a, we can conclude that your requirements are unsatisfiable.",
		"  × No solution found when resolving dependencies:\n  ╰─▶ Because you require b>2\n      and b<1, we can conclude\n\n      hint: try something\n":                                                                                                                                         "No solution found when resolving dependencies:; Because you require b>2 and b<1, we can conclude",
		"Building slow==1.0\nerror: Failed to build `slow==1.0`\n  cause: The build backend returned an error\n  cause: Call to `backend.build_wheel` failed (exit status: 1)\n\n[stderr]\nline one\nline two\nline three\ngcc: command not found\n":                                               "Failed to build `slow==1.0`; The build backend returned an error; Call to `backend.build_wheel` failed (exit status: 1) (the package's build said: line two | line three | gcc: command not found)",
		"error: No solution found when resolving dependencies for split (markers: implementation_name == 'cpython' and sys_platform == 'linux')\n  cause: Because a==1 has no `implementation_name == 'cpython' and sys_platform == 'linux'`-compatible wheels and your project depends on a==1\n": "No solution found when resolving dependencies; Because a==1 has no wheels for this platform and your project depends on a==1",
		"": "exit status 2",
	} {
		if got := uvReason(output, errors.New("exit status 2")); got != want {
			t.Errorf("%q\n got %q\nwant %q", output, got, want)
		}
	}
}

func TestProgressSumsUpWhatUVAnnounces(t *testing.T) {
	t.Parallel()
	var progress uvProgress
	for _, step := range [][2]string{
		{"Resolved 28 packages in 1.2s", ""},
		{"Downloading torch (873.1MiB)", "downloading, 0 MiB of 873 MiB in 0 of 1 files, now torch"},
		{"Downloading numpy (16.1MiB)", "downloading, 0 MiB of 889 MiB in 0 of 2 files, now torch"},
		{"Downloading triton (1.5GiB)", "downloading, 0 MiB of 2.4 GiB in 0 of 3 files, now triton"},
		{" Downloaded triton", "downloading, 1.5 GiB of 2.4 GiB in 1 of 3 files, now torch"},
		{" Downloaded torch", "downloading, 2.4 GiB of 2.4 GiB in 2 of 3 files, now numpy"},
		{" Downloaded numpy", "downloading, 2.4 GiB of 2.4 GiB in 3 of 3 files"},
		{"   Building slow==1.0", "compiling slow==1.0"},
		{"   Building slower==1.0", "compiling slow==1.0, slower==1.0"},
		{"      Built slow==1.0", "compiling slower==1.0"},
		{"Prepared 28 packages in 20s", "linking"},
		{" + torch==2.10.0", ""},
	} {
		if got := progress.line(step[0]); got != step[1] {
			t.Errorf("%q: %q, want %q", step[0], got, step[1])
		}
	}
}
