package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// MaxFileSize is the largest file that is read, in bytes. The largest known manifest has 6 KiB.
const MaxFileSize = 4 << 20

// Parse reads a manifest for the platform this program runs on. The base name of file tells which of the two
// files it is; every other name counts as a comfy-env.toml. Diagnostics come in the file's order. The manifest
// is never nil; when a diagnostic is an error it holds what could be understood, and nothing should be built
// from it.
func Parse(file string, content []byte) (*Manifest, []Diagnostic) {
	return ParseFor(HostPlatform(), file, content)
}

// ParseFor is Parse for a platform in pixi's spelling ("linux-64", "win-64", "osx-arm64").
func ParseFor(platform, file string, content []byte) (*Manifest, []Diagnostic) {
	digest := sha256.Sum256(content)
	m := &Manifest{File: file, Root: filepath.Base(file) == RootFile, Digest: hex.EncodeToString(digest[:]),
		EnvVars: map[string]string{}, PassThrough: map[string]any{}}
	text, shift, problems := decode(content)
	c := &checker{m: m, platform: platform}
	if text == nil {
		c.doc = &document{lines: newLines(content), root: &table{}}
	} else {
		c.doc = readDocument(text)
	}
	for _, p := range problems {
		for i := range p.edits { // edits are of the file, all others of its text
			p.edits[i].Start -= shift
			p.edits[i].End -= shift
		}
		c.problem(p)
	}
	if text != nil && m.Root {
		c.rootFile()
	} else if text != nil {
		c.environmentFile()
	}
	return m, c.diagnostics(file, shift)
}

// Load reads a manifest from disk. What keeps the file from being read is a diagnostic as well.
func Load(file string) (*Manifest, []Diagnostic) {
	content, problem := ReadFile(file)
	if problem != nil {
		return &Manifest{File: file, Root: filepath.Base(file) == RootFile, EnvVars: map[string]string{},
			PassThrough: map[string]any{}}, []Diagnostic{*problem}
	}
	return Parse(file, content)
}

// ReadFile reads a manifest's bytes. Folders, devices and pipes are no manifests, nor is what exceeds MaxFileSize.
func ReadFile(file string) ([]byte, *Diagnostic) {
	refuse := func(code Code, message, fix string) *Diagnostic {
		return &Diagnostic{File: file, Position: Position{Line: 1, Column: 1}, Length: 1, Severity: Error, Code: code,
			Message: message, Why: "nothing can be built from it", Fix: fix}
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, refuse(CodeUnreadable, readProblem("the file", err), "check the path and the permissions")
	}
	switch {
	case info.IsDir():
		return nil, refuse(CodeUnreadable, "this is a folder, not a file", "rename the folder, or remove it")
	case !info.Mode().IsRegular():
		return nil, refuse(CodeUnreadable, "this is no regular file", "put a regular file in its place")
	case info.Size() > MaxFileSize:
		return nil, refuse(CodeTooLarge, fmt.Sprintf("the file has %d bytes, more than the %d that are read", info.Size(), MaxFileSize),
			"a manifest has a few KiB; move everything else out of it")
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, refuse(CodeUnreadable, readProblem("the file", err), "check the permissions")
	}
	if len(content) > MaxFileSize {
		return nil, refuse(CodeTooLarge, "the file grows while it is read", "wait until nothing writes it")
	}
	return content, nil
}

// HostPlatform is the platform this program runs on, in pixi's spelling.
func HostPlatform() string { return Platform(runtime.GOOS, runtime.GOARCH) }

// Platform is pixi's spelling of one of Go's platforms; for those that pixi does not have, "os-arch".
func Platform(goos, goarch string) string {
	switch goos + "/" + goarch {
	case "linux/amd64":
		return "linux-64"
	case "linux/arm64":
		return "linux-aarch64"
	case "linux/ppc64le":
		return "linux-ppc64le"
	case "linux/riscv64":
		return "linux-riscv64"
	case "linux/s390x":
		return "linux-s390x"
	case "windows/amd64":
		return "win-64"
	case "windows/arm64":
		return "win-arm64"
	case "darwin/amd64":
		return "osx-64"
	case "darwin/arm64":
		return "osx-arm64"
	}
	return goos + "-" + goarch
}
