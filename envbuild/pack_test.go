package envbuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// packOne packs the environment of a name and returns the tarball.
func (m *machine) packOne(name, file string) string {
	m.t.Helper()
	environment, err := m.store().Find(name, Query{AnyStack: true})
	if err != nil {
		m.t.Fatal(err)
	}
	file = filepath.Join(m.folder, file)
	packed, err := m.store().Pack(m.t.Context(), environment, file)
	if err != nil {
		m.t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != packed.SHA256 || int64(len(content)) != packed.Bytes {
		m.t.Errorf("packed %+v is not what was written", packed)
	}
	return file
}

// unpack unpacks a tarball for one pack.
func (m *machine) unpack(facts Facts, file, pack string) Result {
	m.t.Helper()
	builder, err := NewBuilder(m.config, facts)
	if err != nil {
		m.t.Fatal(err)
	}
	defer builder.Close()
	work, problems := Discover([]string{pack}, facts.Platform)
	if len(problems) > 0 {
		m.t.Fatal(problems)
	}
	return builder.Unpack(m.t.Context(), work, file, "")
}

func TestAPackedEnvironmentIsThatOfThePackElsewhere(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cpu")
	m.index.torch("cpu", "2.10.0", "cpu")
	m.index.wheel("small", "1.0", nil)
	pack := m.pack("one two", "[pypi-dependencies]\nsmall = \"*\"\nmine = { path = \"../mine\", editable = true }\n")
	m.write("ComfyUI/custom_nodes/one two/mine/pyproject.toml",
		"[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n[project]\nname = \"mine\"\nversion = \"1.0\"\n")
	m.write("ComfyUI/custom_nodes/one two/mine/mine.py", "PLACE = __file__\n")
	m.write("ComfyUI/custom_nodes/one two/mine/backend.py", editableBackend)
	built := m.mustBuild(OutcomeBuilt, pack)
	// A script with a fixed path, as other installers write them.
	fixed := filepath.Join(filepath.Dir(prefixPython(built.Prefix)), "fixed")
	writeFile(t, fixed, "#!"+prefixPython(built.Prefix)+"\nprint('"+built.Revision+"0/not', '"+built.Prefix+"/in')\n")
	file := m.packOne("one-two-nodes", "one.tar.gz")

	// Elsewhere: another root, another place of the pack, no index, no installer.
	elsewhere := filepath.Join(m.folder, "elsewhere", "one two")
	if err := os.MkdirAll(filepath.Dir(elsewhere), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pack, elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(m.config.Root); err != nil {
		t.Fatal(err)
	}
	m.index.Close()
	m.config.Root, m.config.UV = filepath.Join(m.folder, "other root"), filepath.Join(m.folder, "no-uv")
	result := m.unpack(m.facts(), file, elsewhere)
	if result.Outcome != OutcomeUnpacked {
		t.Fatal(result.Error)
	}
	output, err := exec.Command(prefixPython(result.Prefix), "-c", "import mine, small, sys; print(small.__version__, mine.PLACE, sys.prefix)").CombinedOutput()
	if want := "1.0 " + filepath.Join(elsewhere, "mine", "mine.py") + " " + result.Prefix; err != nil || strings.TrimSpace(string(output)) != want {
		t.Errorf("%v\n%s\nwant %s", err, output, want)
	}
	content, err := os.ReadFile(filepath.Join(filepath.Dir(prefixPython(result.Prefix)), "fixed"))
	if want := "#!" + prefixPython(result.Prefix) + "\nprint('" + built.Revision + "0/not', '" + result.Prefix + "/in')\n"; err != nil || string(content) != want {
		t.Errorf("%v\n%s\nwant %s", err, content, want)
	}
	if unchanged := m.mustBuild(OutcomeUnchanged, elsewhere); unchanged.Prefix != result.Prefix {
		t.Errorf("prefix %s", unchanged.Prefix)
	}
	if again := m.unpack(m.facts(), file, elsewhere); again.Outcome != OutcomeUnchanged {
		t.Errorf("%s %s", again.Outcome, again.Error)
	}
	if found, err := m.store().Find("one-two-nodes", Query{AnyStack: true}); err != nil || found.Prefix != result.Prefix {
		t.Errorf("%+v %v", found, err)
	}
}

// editableBackend makes an editable wheel whose .pth names the project's folder.
const editableBackend = `
import os, zipfile
def build_editable(folder, *arguments):
    name = "mine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("mine.pth", os.getcwd() + "\n")
        wheel.writestr("mine-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        wheel.writestr("mine-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("mine-1.0.dist-info/RECORD", "mine.pth,,\nmine-1.0.dist-info/METADATA,,\nmine-1.0.dist-info/WHEEL,,\nmine-1.0.dist-info/RECORD,,\n")
    return name
def build_wheel(*arguments):
    raise SystemExit("not asked")
`

func TestAPackedEnvironmentForAnotherHostIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "torch", "2.10.0+cpu", "comfy-aimdo", "0.4.11")
	m.index.torch("cpu", "2.10.0", "cpu")
	m.index.wheel("comfy-aimdo", "0.4.11", nil)
	pack := m.pack("one", "")
	m.mustBuild(OutcomeBuilt, pack)
	file := m.packOne("one-nodes", "one.tar")
	m.config.Root = filepath.Join(m.folder, "other")
	for name, one := range map[string]struct {
		change func(facts *Facts)
		reason string
	}{
		"torch":   {func(facts *Facts) { facts.Torch.Version = "2.9.1+cpu"; facts.Packages["torch"] = "2.9.1" }, "this host needs py3"},
		"patch":   {func(facts *Facts) { facts.Torch.Version = "2.10.1+cpu"; facts.Packages["torch"] = "2.10.1" }, "the host's torch changed from "},
		"pin":     {func(facts *Facts) { facts.Packages["comfy-aimdo"] = "0.6.0" }, "the host's comfy-aimdo changed from 0.4.11 to 0.6.0"},
		"Python":  {func(facts *Facts) { facts.Python.Version = "3.99.1" }, "this host needs py399-torch2.10-cpu"},
		"no card": {func(facts *Facts) { facts.Torch.Build, facts.GPU = "cu128", GPUFacts{Present: true, Kind: "nvidia"} }, "this host needs py3"},
	} {
		facts := m.facts()
		one.change(&facts)
		if result := m.unpack(facts, file, pack); result.Outcome != OutcomeFailed || !strings.Contains(result.Error, one.reason) {
			t.Errorf("%s: %s %s", name, result.Outcome, result.Error)
		}
	}
	other := strings.NewReplacer(`"os": "`+runtime.GOOS+`"`, `"os": "plan9"`)
	changed := m.repack(file, "platform.tar", func(members []member) []member {
		members[0].content = []byte(other.Replace(string(members[0].content)))
		return members
	})
	if result := m.unpack(m.facts(), changed, pack); !strings.Contains(result.Error, "it is for plan9/"+runtime.GOARCH+", and this is "+runtime.GOOS) {
		t.Error(result.Error)
	}
	m.config.Endpoints.TorchIndex = "https://mirror.example/whl"
	if result := m.unpack(m.facts(), file, pack); !strings.Contains(result.Error, "the torch index (setting) changed from ") {
		t.Error(result.Error)
	}
	if exists(m.store().environments()) {
		t.Error("something was written for it")
	}
}

// member is one of a tarball's.
type member struct {
	header  tar.Header
	content []byte
}

// repack writes a tarball anew with other members.
func (m *machine) repack(from, to string, change func([]member) []member) string {
	m.t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	var members []member
	reader := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			m.t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			m.t.Fatal(err)
		}
		members = append(members, member{*header, content})
	}
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for _, one := range change(members) {
		one.header.Size = int64(len(one.content))
		if err := writer.WriteHeader(&one.header); err != nil {
			m.t.Fatal(err)
		}
		if _, err := writer.Write(one.content); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		m.t.Fatal(err)
	}
	to = filepath.Join(m.folder, to)
	writeFile(m.t, to, out.String())
	return to
}

func TestATarballThatIsNotAsItWasPackedIsNotUsed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	m.mustBuild(OutcomeBuilt, pack)
	file := m.packOne("one-nodes", "one.tar")
	m.config.Root = filepath.Join(m.folder, "other")
	victim := filepath.Join(m.folder, "victim")
	writeFile(t, victim, "untouched")
	facts := m.facts()
	// with puts members before the sums, whose sums are right: only what they are can give them away.
	with := func(added ...member) func([]member) []member {
		return func(members []member) []member {
			last := members[len(members)-1]
			var sums map[string]string
			if err := json.Unmarshal(last.content, &sums); err != nil {
				t.Fatal(err)
			}
			for _, one := range added {
				sum := sha256.Sum256(one.content)
				sums[one.header.Name] = hex.EncodeToString(sum[:])
				if one.header.Typeflag == tar.TypeSymlink {
					sums[one.header.Name] = linkSum(one.header.Linkname)
				}
			}
			var err error
			if last.content, err = json.Marshal(sums); err != nil {
				t.Fatal(err)
			}
			return append(append(members[:len(members)-1:len(members)-1], added...), last)
		}
	}
	regular := func(name string) member {
		return member{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, []byte("escaped")}
	}
	link := func(name, target string) member {
		return member{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, nil}
	}
	directory := func(name string) member {
		return member{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, nil}
	}
	up := strings.Repeat("../", 40)
	at := func(members []member, name string) int {
		t.Helper()
		i := slices.IndexFunc(members, func(one member) bool { return strings.HasSuffix(one.header.Name, name) })
		if i < 0 {
			t.Fatalf("no %s in the tarball", name)
		}
		return i
	}
	for name, one := range map[string]struct {
		change func([]member) []member
		reason string
	}{
		"a path that goes up":     {with(regular("prefix/" + up + victim[1:])), "which is no place in an environment"},
		"a path beside":           {with(regular("stamp.json")), "which is no place in an environment"},
		"an absolute path":        {with(regular(victim)), "which is no place in an environment"},
		"a path with a dot":       {with(regular("prefix/./x")), "which is no place in an environment"},
		"a path with a backslash": {with(regular(`prefix/..\x`)), "which is no place in an environment"},
		"an absolute link":        {with(link("prefix/x", victim)), "out of the environment"},
		"a link that goes up":     {with(link("prefix/x", "../../x")), "out of the environment"},
		"a link that turns":       {with(link("prefix/here", "."), link("prefix/x", "here/../../x")), "out of the environment"},
		"a file below a link":     {with(directory("prefix/d"), link("prefix/x", "d"), regular("prefix/x/y")), "below a link"},
		"a folder below a link":   {with(directory("prefix/d"), link("prefix/x", "d"), directory("prefix/x/y")), "below a link"},
		"a hard link":             {with(member{tar.Header{Name: "prefix/x", Typeflag: tar.TypeLink, Linkname: victim}, nil}), "of a kind that no environment has"},
		"a device":                {with(member{tar.Header{Name: "prefix/x", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, nil}), "of a kind that no environment has"},
		"a file twice":            {with(regular("prefix/x"), regular("prefix/x")), "exists"},
		"an interpreter outside": {func(members []member) []member {
			members[0].content = bytes.Replace(members[0].content, []byte(`"bin/python"`), []byte(`"../../../x"`), 1)
			return members
		}, "is no interpreter of an environment"},
		"another byte": {func(members []member) []member {
			content := members[at(members, "/small/__init__.py")].content
			content[0] ^= 1
			return members
		}, "small/__init__.py does not have the hash that it was packed with"},
		"another link": {func(members []member) []member {
			members[at(members, "bin/python3")].header.Linkname = "fixed"
			return members
		}, "bin/python3 does not have the hash"},
		"another stamp": {func(members []member) []member {
			members[0].content = append(members[0].content, '\n')
			return members
		}, "environment.json does not have the hash"},
		"a file less": {func(members []member) []member {
			i := at(members, "/small/__init__.py")
			return append(members[:i:i], members[i+1:]...)
		}, "small/__init__.py is missing in it"},
		"a file more": {func(members []member) []member {
			return slices.Insert(members, len(members)-1, regular("prefix/x"))
		}, "prefix/x does not have the hash"},
		"something behind":  {func(members []member) []member { return append(members, regular("prefix/x")) }, "it goes on behind its sums"},
		"no sums":           {func(members []member) []member { return members[:len(members)-1] }, "it ends before its sums"},
		"sums that are not": {func(members []member) []member { members[len(members)-1].content = []byte("null"); return members }, "its sums can not be read"},
		"another format": {func(members []member) []member {
			members[0].content = bytes.Replace(members[0].content, []byte(`"format": 1`), []byte(`"format": 7`), 1)
			return members
		}, "its format is 7"},
		"another beginning": {func(members []member) []member { return members[1:] }, "it is no packed environment"},
		"nothing":           {func([]member) []member { return nil }, "it is no packed environment"},
	} {
		if runtime.GOOS == "windows" && (name == "another link" || name == "an interpreter outside") {
			continue // there are none in a virtual environment there
		}
		result := m.unpack(facts, m.repack(file, "changed.tar", one.change), pack)
		if result.Outcome != OutcomeFailed || !strings.Contains(result.Error, one.reason) {
			t.Errorf("%s: %s %s", name, result.Outcome, result.Error)
		}
		if content, err := os.ReadFile(victim); err != nil || string(content) != "untouched" {
			t.Fatalf("%s reached a file elsewhere: %q %v", name, content, err)
		}
		if left, err := filepath.Glob(filepath.Join(m.config.Root, "comfy-supervisor", "envs", "*", "*-1")); err != nil || len(left) > 0 {
			t.Errorf("%s left %v %v", name, left, err)
		}
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if _, err := writer.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{whole[:len(whole)/2], whole[:1000], zipped.Bytes()[:zipped.Len()/2], {0x1f, 0x8b}, {}} {
		cut := filepath.Join(m.folder, "cut.tar")
		writeFile(t, cut, string(content))
		if result := m.unpack(facts, cut, pack); result.Outcome != OutcomeFailed {
			t.Errorf("%d bytes of a tarball: %s", len(content), result.Outcome)
		}
	}
	if result := m.unpack(facts, file, pack); result.Outcome != OutcomeUnpacked {
		t.Error(result.Error)
	}
}
