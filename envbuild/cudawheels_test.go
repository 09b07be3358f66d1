package envbuild

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// cudaMachine is a host with an NVIDIA card, Python 3.12 and torch 2.10 for CUDA 12.8.
func cudaMachine(t *testing.T) (*machine, Facts) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the wheels are for Linux on x86-64")
	}
	needPython(t, "3.12")
	m := newMachine(t, "torch", "2.10.0+cu128", "torchvision", "0.25.0")
	for _, version := range []string{"2.8.0", "2.10.0"} {
		m.index.torch("cu128", version, "cu128")
	}
	for _, version := range []string{"0.23.0", "0.25.0"} {
		file, content := makeWheel("torchvision", version+"+cu128", "py3-none-any", nil)
		m.index.add("torch/cu128", file, content)
	}
	m.config.Endpoints.CUDAWheels = m.index.URL + "/cuda/"
	facts := m.facts()
	facts.GPU = GPUFacts{Present: true, Kind: "nvidia", Devices: []GPUDevice{{Kind: "nvidia"}}}
	return m, facts
}

// listCUDA answers the page of a package with links by the names given; each leads to one pure wheel.
func (m *machine) listCUDA(folder, hash string, names ...string) {
	m.t.Helper()
	module, _, _ := strings.Cut(names[0], "-")
	file, content := makeWheel(module, "1.0", "py3-none-any", nil)
	sum := sha256.Sum256(content)
	if hash == "" {
		hash = hex.EncodeToString(sum[:])
	}
	m.index.add("releases", file, content)
	m.index.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/cuda/"+folder+"/" {
			return false
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		for _, name := range names {
			fmt.Fprintf(w, "<a class=\"wheel\" href=\"../../releases/files/%s#sha256=%s\">%s</a><br>\n", file, hash, strings.ReplaceAll(name, "+", "&#43;"))
		}
		return true
	})
}

func TestCUDAPackagesComeFromTheirIndexForTheHostsStack(t *testing.T) {
	t.Parallel()
	m, facts := cudaMachine(t)
	m.listCUDA("flash_attn", "", "flash_attn-2.8.3+cu128torch2.10-cp312-cp312-linux_x86_64.whl", "flash_attn-2.8.3+cu128torch2.1-cp312-cp312-linux_x86_64.whl")
	results := m.buildWith(t.Context(), facts, m.pack("one", "python = \"3.12\"\n[cuda]\npackages = [\"flash-attn\"]\n"))
	if results[0].Outcome != OutcomeBuilt {
		t.Fatal(results[0].Error)
	}
	if got := installed(t, results[0], "flash-attn", "torch"); got["flash-attn"] != "1.0" || got["torch"] != "2.10.0+cu128" {
		t.Errorf("installed %v", got)
	}
	if !m.said(EventLine, "flash_attn-2.8.3+cu128torch2.10-cp312-cp312-linux_x86_64.whl from the CUDA wheel index") {
		t.Errorf("lines %q", m.texts(EventLine))
	}
}

func TestWithoutAWheelForTheHostsStackTheFallbackStackIsTakenWithALine(t *testing.T) {
	t.Parallel()
	m, facts := cudaMachine(t)
	m.listCUDA("nvdiffrast", "", "nvdiffrast-0.4+pt2.8cu128-cp312-cp312-manylinux_2_34_x86_64.whl")
	results := m.buildWith(t.Context(), facts, m.pack("one", "python = \"3.12\"\n[cuda]\npackages = [\"nvdiffrast\"]\n"))
	if results[0].Outcome != OutcomeBuilt {
		t.Fatal(results[0].Error)
	}
	if got := installed(t, results[0], "nvdiffrast", "torch", "torchvision"); got["nvdiffrast"] != "1.0" || got["torch"] != "2.8.0+cu128" || got["torchvision"] != "0.23.0+cu128" {
		t.Errorf("installed %v", got)
	}
	if !m.said(EventLine, "torch 2.8 for CUDA 12.8 in place of the host's: the CUDA wheel index "+m.index.URL+"/cuda/ has no wheel of nvdiffrast for CUDA 12.8, torch 2.10, Python 3.12, linux/amd64") {
		t.Errorf("lines %q", m.texts(EventLine))
	}
	if _, err := m.store().Find("one-nodes", Query{Stack: facts.Stack()}); err != nil {
		t.Error(err)
	}
}

func TestACUDAPackageWithoutAnyWheelSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	m, facts := cudaMachine(t)
	m.listCUDA("rare", "", "rare-1.0+cu128torch2.10-cp313-cp313-linux_x86_64.whl", "rare-1.0+cu128torch2.8-cp312-cp312-win_amd64.whl", "rare-1.0+cu130torch2.10-cp312-cp312-linux_x86_64.whl")
	results := m.buildWith(t.Context(), facts, m.pack("one", "python = \"3.12\"\n[cuda]\npackages = [\"rare\"]\n"))
	for _, part := range []string{"no wheel of rare for CUDA 12.8, torch 2.10, Python 3.12", "it has rare-1.0+cu128torch2.10-cp313-cp313-linux_x86_64.whl, rare-1.0+cu130", "nor for CUDA 12.8 with torch 2.8"} {
		if !strings.Contains(results[0].Error, part) {
			t.Errorf("%q lacks %q", results[0].Error, part)
		}
	}
	if strings.Contains(results[0].Error, "win_amd64") {
		t.Errorf("%q names what is for another system", results[0].Error)
	}
	results = m.buildWith(t.Context(), facts, m.pack("two", "[cuda]\npackages = [\"unknown\"]\n"))
	if !strings.Contains(results[0].Error, "has no package unknown") {
		t.Error(results[0].Error)
	}
}

func TestACUDAWheelWithAnotherHashIsNotInstalled(t *testing.T) {
	t.Parallel()
	m, facts := cudaMachine(t)
	m.listCUDA("bad", strings.Repeat("0", 64), "bad-1.0+cu128torch2.10-cp312-cp312-linux_x86_64.whl")
	results := m.buildWith(t.Context(), facts, m.pack("one", "python = \"3.12\"\n[cuda]\npackages = [\"bad\"]\n"))
	if results[0].Outcome != OutcomeFailed || !strings.Contains(strings.ToLower(results[0].Error), "hash") {
		t.Errorf("%+v", results[0])
	}
}

func TestTheNewestCUDAWheelThatFitsIsChosen(t *testing.T) {
	t.Parallel()
	stack := cudaStack{CUDA: "128", Torch: "2.10"}
	list := func(names ...string) []cudaWheel {
		var wheels []cudaWheel
		for _, name := range names {
			wheels = append(wheels, cudaWheel{Name: name})
		}
		return wheels
	}
	for _, one := range []struct {
		requirement string
		names       []string
		want        string
	}{
		{"a", []string{"a-1.9+cu128torch2.10-cp312-cp312-linux_x86_64.whl", "a-1.10+cu128torch2.10-cp312-cp312-linux_x86_64.whl"}, "a-1.10+cu128torch2.10-cp312-cp312-linux_x86_64.whl"},
		{"a<1.10", []string{"a-1.9+cu128torch2.10-cp312-cp312-linux_x86_64.whl", "a-1.10+cu128torch2.10-cp312-cp312-linux_x86_64.whl"}, "a-1.9+cu128torch2.10-cp312-cp312-linux_x86_64.whl"},
		{"a", []string{"a-1.0+cu128torch2.10-cp312-cp312-linux_x86_64.whl", "a-1.0+cu128torch2.10-cp312-cp312-manylinux_2_34_x86_64.whl"}, "a-1.0+cu128torch2.10-cp312-cp312-manylinux_2_34_x86_64.whl"},
		{"a", []string{"a-1.0+pt2.10cu128-cp310-abi3-linux_x86_64.whl"}, "a-1.0+pt2.10cu128-cp310-abi3-linux_x86_64.whl"},
		{"a", []string{"a-1.0+cu128torch2.10-py3-none-any.whl"}, "a-1.0+cu128torch2.10-py3-none-any.whl"},
		{"a", []string{"a-1.0+cu128torch2.1-cp312-cp312-linux_x86_64.whl"}, ""},
		{"a", []string{"a-1.0+cu128torch2.10-cp313-abi3-linux_x86_64.whl"}, ""},
		{"a", []string{"a-1.0+cu128torch2.10-cp312-cp312-manylinux_2_34_aarch64.whl"}, ""},
		{"a", []string{"a-1.0+cu126torch2.10-cp312-cp312-linux_x86_64.whl", "a-1.0.tar.gz", "nonsense.whl"}, ""},
	} {
		got, ok := chooseCUDAWheel(list(one.names...), one.requirement, stack, "3.12", "linux/amd64")
		if got.Name != one.want || ok != (one.want != "") {
			t.Errorf("%s of %v: %q", one.requirement, one.names, got.Name)
		}
	}
}

func TestVersionSpecifiersAreEvaluated(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"1.5 >=1.2,<2": true, "2.0 >=1.2,<2": false, "1.5 ==1.5.0": true, "1.5.1 ==1.5": false, "1.5.1 ==1.5.*": true, "1.50 ==1.5.*": false,
		"1.5.9 ~=1.5.2": true, "1.6 ~=1.5.2": false, "1.9 ~=1.5": true, "2.0 ~=1.5": false, "1.5 !=1.5": false, "1.6 !=1.5.*": true, "1.10 >1.9": true,
		"3 *": true, "3 ": true,
	} {
		version, specifier, _ := strings.Cut(text, " ")
		if got := satisfies(version, specifier); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
