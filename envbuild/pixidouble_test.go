//go:build unix

package envbuild

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pixiDouble takes pixi's place: it records its command lines and the workspace file it was given, and does with
// them what pixi documents: `lock` writes pixi.lock, `update` writes it anew, `install --frozen` makes
// .pixi/envs/default from the lock alone, `shell-hook --json` prints the variables. Packages come from nowhere: each
// line "name version" of the lock becomes metadata.
const pixiDouble = `
import json, os, pathlib, re, subprocess, sys, venv
here = pathlib.Path(__file__).resolve().parent
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("pixi 0.75.0")
    sys.exit(0)
manifest = pathlib.Path(arguments[arguments.index("--manifest-path") + 1])
root = manifest.parent
project = manifest.read_text(encoding="utf-8")
with open(here / "calls.jsonl", "a", encoding="utf-8") as calls:
    calls.write(json.dumps({"arguments": arguments, "project": project, "environ": dict(os.environ)}) + "\n")
def table(name):
    match = re.search(r"(?ms)^\[" + re.escape(name) + r"\]\n(.*?)(?=^\[|\Z)", project)
    return match.group(1) if match else ""
def wanted():
    packages = {}
    for line in table("pypi-dependencies").splitlines():
        name, found, version = line.partition(" = ")
        if found:
            packages[name] = version.strip("'\"").removeprefix("==")
    for name, body in re.findall(r"(?ms)^\[pypi-dependencies\.([^\]]+)\]\n(.*?)(?=^\[|\Z)", project):
        match = re.search(r"version = '==([^']*)'", body)
        packages[name] = match.group(1) if match else "1.0"
    return packages
mode = (here / "mode").read_text() if (here / "mode").exists() else ""
command = arguments[0]
lock = root / "pixi.lock"
if command in ("lock", "update"):
    packages = wanted()
    if mode == "no-wheel" and "comfy-aimdo" in packages:
        print("Error:   × failed to solve the pypi requirements of environment 'default'", file=sys.stderr)
        print("  ├─▶ failed to resolve pypi dependencies", file=sys.stderr)
        print("  ╰─▶ Because comfy-aimdo==" + packages["comfy-aimdo"] + " has no wheels with a matching", file=sys.stderr)
        print("      │ platform tag and you require it, your requirements are unsatisfiable.", file=sys.stderr)
        sys.exit(1)
    if mode == "conflict":
        print("Error:   × failed to solve requirements of environment 'default'", file=sys.stderr)
        print("  ╰─▶ Cannot solve the request because of: No candidates were found for ffmpeg 99.*", file=sys.stderr)
        sys.exit(1)
    text = "version: 6\npackages:\n"
    if command == "lock" and lock.exists():
        old = dict(re.findall(r"(?m)^- pypi: ([^ ]+) ([^ ]+)$", lock.read_text()))
        packages = {name: old.get(name, version) if version == "*" else version for name, version in packages.items()}
    if command == "update" and "unheard-of" in arguments:
        sys.exit("could not find a package named 'unheard-of'")
    newest = (here / "newest").read_text() if (here / "newest").exists() else "1.0"
    for name, version in sorted(packages.items()):
        text += "- pypi: %s %s\n  name: %s\n" % (name, newest if version == "*" else version, name)
    text += "- conda: https://conda.example/linux-64/ffmpeg-6.1-h1.conda\n  size: 2097152\n"
    lock.write_text(text)
elif command == "install":
    if "--frozen" not in arguments or not lock.exists():
        sys.exit("an installation without its lock file")
    if mode == "gone":
        print("Error:   × failed to fetch ffmpeg-6.1-h1.conda: 404", file=sys.stderr)
        sys.exit(1)
    if mode == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print("working %d %d" % (os.getpid(), child.pid), flush=True)
        child.wait()
    prefix = root / ".pixi" / "envs" / "default"
    venv.create(prefix, symlinks=True)
    (prefix / "conda-meta").mkdir()
    version = "%d.%d.%d" % sys.version_info[:3]
    (prefix / "conda-meta" / ("python-%s-h2628c8c_0_cpython.json" % version)).write_text("{}")
    site = prefix / "lib" / ("python%d.%d" % sys.version_info[:2]) / "site-packages"
    for name, version in re.findall(r"(?m)^- pypi: ([^ ]+) ([^ ]+)$", lock.read_text()):
        info = site / (name.replace("-", "_") + "-" + version + ".dist-info")
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
        if name == "torch":
            (site / "torch").mkdir()
            (site / "torch" / "version.py").write_text("__version__ = '%s+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n" % version)
    print("✔ The default environment has been installed.", file=sys.stderr)
elif command == "shell-hook":
    prefix = str(root / ".pixi" / "envs" / "default")
    print(json.dumps({"environment_variables": {
        "PATH": prefix + "/bin:/opt/of/a/script:" + os.environ["PATH"], "CONDA_PREFIX": prefix, "PIXI_IN_SHELL": "1",
        "GDAL_DATA": prefix + "/share/gdal", "FROM_SCRIPT": "$kept as it is", "HOME": os.environ["HOME"]},
        "activation_scripts": []}))
else:
    sys.exit("unknown command " + command)
`

// pixiCall is one recorded call of the double.
type pixiCall struct {
	Arguments []string
	Project   string
	Environ   map[string]string
}

// usePixi puts the double into the machine's settings and returns its folder.
func (m *machine) usePixi(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(m.folder, "pixi-double")
	python := needPython(t, "")
	writeFile(t, filepath.Join(folder, "double.py"), pixiDouble)
	writeProgram(t, filepath.Join(folder, "pixi"), "#!/bin/sh\nexec '"+python+"' '"+filepath.Join(folder, "double.py")+"' \"$@\"\n")
	m.config.Pixi = filepath.Join(folder, "pixi")
	return folder
}

// pixiCalls are the double's calls so far.
func pixiCalls(t *testing.T, folder string) []pixiCall {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "calls.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var calls []pixiCall
	for line := range strings.Lines(string(content)) {
		var call pixiCall
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	return calls
}
