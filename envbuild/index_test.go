package envbuild

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// packageIndex is a simple index on this machine, with a default index below /simple and torch's below
// /torch/<build>. Handlers that a test sets see requests first.
type packageIndex struct {
	*httptest.Server

	mutex    sync.Mutex
	files    map[string]map[string][]byte // index path ("simple", "torch/cpu") to file name to bytes
	hashes   map[string]string            // file name to the hash that is told instead of the right one
	requests []string
	before   func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
}

func newPackageIndex(t testing.TB) *packageIndex {
	t.Helper()
	index := &packageIndex{files: map[string]map[string][]byte{"simple": {}}, hashes: map[string]string{}}
	index.Server = httptest.NewServer(http.HandlerFunc(index.serve))
	t.Cleanup(func() {
		index.CloseClientConnections()
		index.Close()
	})
	return index
}

// defaultIndex is the URL of the default index.
func (p *packageIndex) defaultIndex() string { return p.URL + "/simple" }

// torchBase is the base of torch's indexes.
func (p *packageIndex) torchBase() string { return p.URL + "/torch" }

func (p *packageIndex) serve(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	p.requests = append(p.requests, r.URL.Path)
	before := p.before
	p.mutex.Unlock()
	if before != nil && before(w, r) {
		return
	}
	path := strings.Trim(r.URL.Path, "/")
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if place, file, found := cutLast(path, "/files/"); found {
		if wheel, wanted := strings.CutSuffix(file, ".metadata"); wanted {
			if metadata := wheelMetadata(p.files[place][wheel]); metadata != nil {
				_, _ = w.Write(metadata)
				return
			}
		}
		content, exists := p.files[place][file]
		if !exists {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, file, zeroTime, bytes.NewReader(content))
		return
	}
	place, name, _ := cutLast(path, "/")
	var page strings.Builder
	for _, file := range slices.Sorted(maps.Keys(p.files[place])) {
		distribution, _, _ := strings.Cut(file, "-")
		if normalizeName(distribution) != name {
			continue
		}
		hash := p.hashes[file]
		if hash == "" {
			sum := sha256.Sum256(p.files[place][file])
			hash = hex.EncodeToString(sum[:])
		}
		fmt.Fprintf(&page, "<a href=\"/%s/files/%s#sha256=%s\">%s</a>\n", place, file, hash, file)
	}
	if page.Len() == 0 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, "<!DOCTYPE html><html><body>%s</body></html>", page.String())
}

// wheelMetadata is the METADATA of a wheel, nil when there is none.
func wheelMetadata(wheel []byte) []byte {
	archive, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		return nil
	}
	for _, file := range archive.File {
		if strings.HasSuffix(file.Name, ".dist-info/METADATA") {
			if opened, err := file.Open(); err == nil {
				defer opened.Close()
				content, err := io.ReadAll(opened)
				if err == nil {
					return content
				}
			}
		}
	}
	return nil
}

func cutLast(text, separator string) (string, string, bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// intercept lets a test answer requests itself.
func (p *packageIndex) intercept(handler func(w http.ResponseWriter, r *http.Request) bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.before = handler
}

// asked counts the requests whose path contains a text.
func (p *packageIndex) asked(text string) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	count := 0
	for _, path := range p.requests {
		if strings.Contains(path, text) {
			count++
		}
	}
	return count
}

// add publishes a file.
func (p *packageIndex) add(place, file string, content []byte) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.files[place] == nil {
		p.files[place] = map[string][]byte{}
	}
	p.files[place][file] = content
}

// wheel publishes a pure Python package on the default index. Extra pairs are file name and content.
func (p *packageIndex) wheel(name, version string, requires []string, extra ...string) {
	file, content := makeWheel(name, version, "py3-none-any", requires, extra...)
	p.add("simple", file, content)
}

// torch publishes a torch whose build kind is build, on torch's index of a kind or ("") on the default one.
func (p *packageIndex) torch(place, version, build string, requires ...string) {
	local, cuda := version+"+"+build, "None"
	if number, found := strings.CutPrefix(build, "cu"); found {
		cuda = "'" + number[:len(number)-1] + "." + number[len(number)-1:] + "'"
	}
	hip := "None"
	if number, found := strings.CutPrefix(build, "rocm"); found {
		hip = "'" + number + ".1-abc'"
	}
	if place == "" {
		place, local = "simple", version
	} else {
		place = "torch/" + place
	}
	file, content := makeWheel("torch", local, "py3-none-any", requires,
		"torch/version.py", fmt.Sprintf("__version__ = '%s+%s'\ncuda: Optional[str] = %s\nhip: Optional[str] = %s\n", version, build, cuda, hip))
	p.add(place, file, content)
}

// makeWheel builds a wheel in memory.
func makeWheel(name, version, tag string, requires []string, extra ...string) (string, []byte) {
	module := strings.ReplaceAll(name, "-", "_")
	info := fmt.Sprintf("%s-%s.dist-info", module, version)
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)
	for _, requirement := range requires {
		metadata += "Requires-Dist: " + requirement + "\n"
	}
	files := map[string]string{
		module + "/__init__.py": fmt.Sprintf("__version__ = %q\n", version),
		info + "/METADATA":      metadata,
		info + "/WHEEL":         fmt.Sprintf("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: %s\n", tag),
	}
	for i := 0; i+1 < len(extra); i += 2 {
		files[extra[i]] = extra[i+1]
	}
	record := ""
	for _, file := range slices.Sorted(maps.Keys(files)) {
		record += file + ",,\n"
	}
	files[info+"/RECORD"] = record + info + "/RECORD,,\n"
	var buffer bytes.Buffer
	archive := zip.NewWriter(&buffer)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		writer, err := archive.Create(file)
		if err == nil {
			_, err = writer.Write([]byte(files[file]))
		}
		if err != nil {
			panic(err)
		}
	}
	if err := archive.Close(); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s-%s-%s.whl", module, version, tag), buffer.Bytes()
}

// makeSource builds a source archive whose build backend is its own module.
func makeSource(name, version, backend string) (string, []byte) {
	module := strings.ReplaceAll(name, "-", "_")
	base := fmt.Sprintf("%s-%s", module, version)
	files := map[string]string{
		base + "/PKG-INFO": fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version),
		base + "/pyproject.toml": fmt.Sprintf("[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n"+
			"[project]\nname = %q\nversion = %q\n", name, version),
		base + "/backend.py": backend,
	}
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zipped)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		err := archive.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(files[file]))})
		if err == nil {
			_, err = archive.Write([]byte(files[file]))
		}
		if err != nil {
			panic(err)
		}
	}
	if err := archive.Close(); err != nil {
		panic(err)
	}
	if err := zipped.Close(); err != nil {
		panic(err)
	}
	return base + ".tar.gz", buffer.Bytes()
}
