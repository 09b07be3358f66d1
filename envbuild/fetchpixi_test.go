//go:build unix

package envbuild

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// requests records what a server is asked.
type requests struct {
	mutex sync.Mutex
	lines []string
}

func (r *requests) add(line string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.lines = append(r.lines, line)
}

func (r *requests) all() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return strings.Join(r.lines, "\n")
}

// notPixi is an archive of the right name with other bytes.
func notPixi(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("no archive of pixi")) // a client that went away is the test's failure
}

func TestPixiIsFetchedThroughTheProxyThatIsSet(t *testing.T) {
	t.Parallel()
	archive, known := pixiArchives[runtime.GOOS+"/"+runtime.GOARCH]
	if !known {
		t.Skip("pixi has no release for this platform")
	}
	var seen requests
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.add(r.Method + " " + r.URL.String())
		notPixi(w, r)
	}))
	t.Cleanup(proxy.Close)
	fetch := func(environ ...string) (string, int) {
		t.Helper()
		before := len(seen.all())
		m := newMachine(t)
		m.config.Environ = append([]string{"PATH=" + t.TempDir(), "HOME=" + m.folder}, environ...)
		m.config.PixiReleases = "http://releases.invalid/pixi" // no name server knows it
		return m.mustBuild(OutcomeFailed, m.pack("one", condaManifest)).Error, len(seen.all()) - before
	}
	failure, asked := fetch("HTTP_PROXY=" + proxy.URL)
	if want := "GET http://releases.invalid/pixi/v" + pixiVersion + "/" + archive.name; !strings.Contains(seen.all(), want) {
		t.Errorf("the proxy was asked %q, want %q", seen.all(), want)
	}
	if asked == 0 || !strings.Contains(failure, "has sha256 ") {
		t.Error(failure)
	}
	if failure, asked = fetch("HTTP_PROXY="+proxy.URL, "NO_PROXY=releases.invalid"); asked != 0 || !strings.Contains(failure, "releases.invalid") {
		t.Errorf("despite NO_PROXY the proxy was asked: %s", failure)
	}
	if failure, _ = fetch("https_proxy="+proxy.URL, "all_proxy="+proxy.URL); !strings.Contains(failure, "has sha256 ") {
		t.Error(failure)
	}
}

func TestPixiIsFetchedFromWhomTheSetAuthoritiesVouchFor(t *testing.T) {
	t.Parallel()
	if _, known := pixiArchives[runtime.GOOS+"/"+runtime.GOARCH]; !known {
		t.Skip("pixi has no release for this platform")
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(notPixi))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what is tested
	server.StartTLS()
	t.Cleanup(server.Close)
	m := newMachine(t)
	m.config.PixiReleases = server.URL
	bundle := filepath.Join(m.folder, "authorities.pem")
	writeFile(t, bundle, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	bare := []string{"PATH=" + t.TempDir(), "HOME=" + m.folder}
	pack := m.pack("one", condaManifest)
	for _, one := range []struct{ variable, want string }{
		{"UNRELATED=1", "certificate"}, // nobody vouches for it
		{"SSL_CERT_FILE=" + bundle, "has sha256 "},
		{"PIP_CERT=" + bundle, "has sha256 "},
		{"SSL_CERT_FILE=" + filepath.Join(m.folder, "missing.pem"), "reading the certificate authorities"},
		{"SSL_CERT_FILE=" + filepath.Join(m.comfyui, "main.py"), "holds no certificate"},
	} {
		m.config.Environ = append(bare[:len(bare):len(bare)], one.variable, "PIP_CONFIG_FILE=/dev/null")
		if failed := m.mustBuild(OutcomeFailed, pack); !strings.Contains(failed.Error, one.want) {
			t.Errorf("%s: %s", one.variable, failed.Error)
		}
	}
}

func TestTheHashesOfCUDAWheelsAreHeldAgainstPixisLockFile(t *testing.T) {
	t.Parallel()
	good, bad := strings.Repeat("a", 64), strings.Repeat("b", 64)
	wheel := "https://wheels.example/cu128/flash_attn-2.8.3%2Bcu128torch2.10-cp312-cp312-linux_x86_64.whl"
	other := "https://wheels.example/cu128/sage-1.0-cp312-cp312-linux_x86_64.whl"
	// As pixi writes it: conda packages, then Python's, each an entry with its keys below.
	lock := func(entries string) string {
		return "version: 6\nenvironments:\n  default:\n    packages:\n      linux-64:\n      - pypi: " + wheel + "\npackages:\n" +
			"- conda: https://conda.example/linux-64/ffmpeg-6.1-h1.conda\n  sha256: " + bad + "\n  size: 1\n" + entries
	}
	entry := func(url, hash string) string {
		return "- pypi: " + url + "\n  name: flash-attn\n  version: 2.8.3\n  sha256: " + hash + "\n  requires_dist:\n  - einops\n  requires_python: '>=3.9'\n"
	}
	for name, one := range map[string]struct {
		entries string
		wheels  []cudaWheel
		refused bool
	}{
		"the right hash":                {entry(wheel, good), []cudaWheel{{URL: wheel, Hash: good}}, false},
		"quoted, with a fragment":       {entry("'"+wheel+"#sha256="+good+"'", "'"+good+"'"), []cudaWheel{{URL: wheel, Hash: good}}, false},
		"with carriage returns":         {strings.ReplaceAll(entry(wheel, good), "\n", "\r\n"), []cudaWheel{{URL: wheel, Hash: good}}, false},
		"another hash":                  {entry(wheel, bad), []cudaWheel{{URL: wheel, Hash: good}}, true},
		"the hash of a neighbour":       {entry(other, good), []cudaWheel{{URL: wheel, Hash: good}}, true},
		"no hash at all":                {"- pypi: " + wheel + "\n  name: flash-attn\n" + entry(other, good), []cudaWheel{{URL: wheel, Hash: good}}, true},
		"one of two is wrong":           {entry(wheel, good) + entry(other, bad), []cudaWheel{{URL: wheel, Hash: good}, {URL: other, Hash: good}}, true},
		"an index that tells no hashes": {entry(wheel, bad), []cudaWheel{{URL: wheel}}, false},
	} {
		file := filepath.Join(t.TempDir(), pixiLockName)
		writeFile(t, file, lock(one.entries))
		err := checkPixiHashes(file, one.wheels)
		if (err != nil) != one.refused || err != nil && !strings.Contains(err.Error(), "does not have the hash that its index tells") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkPixiHashes(filepath.Join(t.TempDir(), "missing"), []cudaWheel{{URL: wheel, Hash: good}}); err == nil {
		t.Error("a lock file that is not there says nothing against nobody's hash")
	}
}
