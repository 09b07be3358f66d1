package envbuild

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestInterpretersAreLookedForInTheOrderOfTheirPlaces(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the folders are laid out as on Unix")
	}
	real311, real312 := needPython(t, "3.11"), needPython(t, "3.12")
	folder := t.TempDir()
	link := func(target string, parts ...string) string {
		path := filepath.Join(append([]string{folder}, parts...)...)
		// A script, since an interpreter finds its library through the link's target.
		writeProgram(t, path, "#!/bin/sh\nexec '"+target+"' \"$@\"\n")
		return path
	}
	link(real312, "path", "python3")
	onPath := link(real311, "path", "python3.11")
	pyenv := link(real311, "pyenv", "versions", "3.11.7", "bin", "python")
	link(real311, "pyenv", "versions", "3.11.7-debug", "bin", "python")
	uv := link(real311, "uv", "cpython-3.11.9-linux-x86_64-gnu", "bin", "python3")
	environ := func(places ...string) []string {
		variables := []string{"PATH=", "HOME=" + filepath.Join(folder, "home"), "PYENV_ROOT=", "UV_PYTHON_INSTALL_DIR=" + filepath.Join(folder, "none")}
		for _, place := range places {
			switch place {
			case "path":
				variables = append(variables, "PATH="+filepath.Join(folder, "path"))
			case "pyenv":
				variables = append(variables, "PYENV_ROOT="+filepath.Join(folder, "pyenv"))
			case "uv":
				variables = append(variables, "UV_PYTHON_INSTALL_DIR="+filepath.Join(folder, "uv"))
			}
		}
		return variables
	}
	for _, one := range []struct {
		host    string
		environ []string
		source  string
	}{
		{real311, environ("path", "pyenv", "uv"), "the host's"},
		{real312, environ("path", "pyenv", "uv"), "PATH"},
		{real312, environ("pyenv", "uv"), "pyenv"},
		{"", environ("uv"), "uv"},
	} {
		found, err := findPython(t.Context(), "3.11", PythonFacts{BaseExecutable: one.host}, one.environ, prober{})
		if err != nil || found.Source != one.source || minorVersion(found.Version) != "3.11" {
			t.Errorf("%v: %+v %v; want %s (%s %s %s)", one.environ, found, err, one.source, onPath, pyenv, uv)
		}
	}
	_, err := findPython(t.Context(), "3.11", PythonFacts{BaseExecutable: real312}, environ(), prober{})
	var missing *NoPythonError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "no Python 3.11") || !strings.Contains(err.Error(), real312+" is 3.12") ||
		!strings.Contains(err.Error(), "PATH") || !strings.Contains(err.Error(), "pyenv") {
		t.Errorf("%v", err)
	}
}

func TestAVirtualEnvironmentOnPathLeadsToWhatItWasMadeFrom(t *testing.T) {
	t.Parallel()
	prefix := filepath.Join(t.TempDir(), "active")
	base := needPython(t, "3.12")
	if output, err := exec.Command(needUV(t), "venv", "--quiet", "--python", base, prefix).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, output)
	}
	environ := []string{"PATH=" + filepath.Dir(prefixPython(prefix)), "HOME=" + t.TempDir()}
	found, err := findPython(t.Context(), "3.12", PythonFacts{}, environ, prober{})
	if err != nil || strings.HasPrefix(found.Executable, prefix) {
		t.Errorf("%+v %v", found, err)
	}
}

func TestEveryInterpreterThatIsSupportedBuildsAnEnvironment(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.10", "3.11", "3.12", "3.13"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			needPython(t, version)
			m := newMachine(t)
			m.environ = append(m.environ, "PYENV_ROOT="+filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(needPython(t, version))))))
			m.config.Environ = m.environ
			m.index.wheel("small", "1.0", nil)
			result := m.mustBuild(OutcomeBuilt, m.pack("one", "python = \""+version+"\"\n[pypi-dependencies]\nsmall = \"*\"\n"))
			output, err := exec.Command(prefixPython(result.Prefix), "-c", "import small, sys; print(*sys.version_info[:2], sep='.')").CombinedOutput()
			if err != nil || strings.TrimSpace(string(output)) != version {
				t.Errorf("%v %s", err, output)
			}
			if !strings.HasPrefix(result.Stack, "py"+strings.Replace(version, ".", "", 1)) {
				t.Errorf("stack %s", result.Stack)
			}
		})
	}
}
