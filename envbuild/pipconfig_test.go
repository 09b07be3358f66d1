package envbuild

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestPipsSettingsAreHandedToUVWhereItsOwnAreUnset(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	wheels := filepath.Join(folder, "wheels")
	if err := os.Mkdir(wheels, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(folder, "pip.conf")
	writeFile(t, config, `# the operator's
[global]
index-url = https://file.example/simple
trusted_host = file.example
timeout: 60
[install]
extra-index-url =
    https://one.example/simple
    https://two.example/simple
[download]
no-index = true
`)
	environ := []string{"HOME=" + folder, "PIP_CONFIG_FILE=" + config, "PIP_CERT=/etc/authority.pem",
		"PIP_FIND_LINKS=" + wheels + " " + filepath.Join(folder, "missing") + " https://links.example/"}
	got := readPip(environ, "").variablesForUV(environ, folder)
	want := []string{
		"UV_DEFAULT_INDEX=https://file.example/simple",
		"UV_INDEX=https://one.example/simple https://two.example/simple",
		"UV_FIND_LINKS=" + wheels + ",https://links.example/",
		"UV_INSECURE_HOST=file.example",
		"SSL_CERT_FILE=/etc/authority.pem",
		"UV_HTTP_TIMEOUT=60",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	environ = append(environ, "PIP_INDEX_URL=https://variable.example/simple", "UV_INDEX=https://mine.example/simple", "SSL_CERT_DIR=/etc/ssl")
	got = readPip(environ, "").variablesForUV(environ, folder)
	want = []string{"UV_DEFAULT_INDEX=https://variable.example/simple", want[2], want[3], want[5]}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	environ = append(environ, "UV_INDEX_URL=https://older.example/simple", "PIP_CONFIG_FILE="+os.DevNull)
	if got := readPip(environ, "").variablesForUV(environ, folder); slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "UV_DEFAULT_INDEX") }) {
		t.Errorf("uv's own index was overridden: %q", got)
	}
}

// TestPipItselfReadsTheSameSettings holds our reading of its files against pip's.
func TestPipItselfReadsTheSameSettings(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the folders are Linux's")
	}
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "xdg", "pip", "pip.conf"), "[global]\nindex-url = https://site.example/simple\nproxy = http://proxy.example:3128\n")
	writeFile(t, filepath.Join(folder, ".pip", "pip.conf"), "[global]\nindex-url = https://legacy.example/simple\n")
	writeFile(t, filepath.Join(folder, ".config", "pip", "pip.conf"), "[global]\nextra-index-url = https://user.example/simple\n\thttps://more.example/simple\n[install]\nindex-url=https://install.example/simple\n")
	environ := []string{"HOME=" + folder, "XDG_CONFIG_DIRS=" + filepath.Join(folder, "xdg"), "PATH=" + os.Getenv("PATH"), "PIP_TRUSTED_HOST=user.example"}
	python, err := interpreterWithPip(t.Context(), toolSearch{host: PythonFacts{Executable: needPython(t, "")}, environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(python, "-m", "pip", "config", "list")
	command.Env = environ
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	pip := map[string]string{}
	for _, section := range []string{"global.", "install.", ":env:."} { // pip's order of precedence for installing
		for line := range strings.Lines(string(output)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if rest, found := strings.CutPrefix(name, section); found {
				pip[rest] = strings.ReplaceAll(strings.Trim(value, "'"), `\n`, "\n")
			}
		}
	}
	ours := readPip(environ, filepath.Dir(filepath.Dir(python)))
	for _, name := range []string{"index-url", "extra-index-url", "proxy", "trusted-host"} {
		if strings.Join(strings.Fields(pip[name]), " ") != strings.Join(ours.list(name), " ") || pip[name] == "" {
			t.Errorf("%s: pip says %q, we say %q", name, pip[name], ours[name])
		}
	}
}
