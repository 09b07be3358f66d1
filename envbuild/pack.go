package envbuild

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A packed environment is a tarball: first what it is, with the stamp of its revision, then the prefix and the lock
// file, last the SHA-256 of every file. Unpacking needs no network and no installer: a manifest and a host for which
// the plan is the same, and for environments of uv's a Python of the version.

// packFormat is the version of packed environments.
const packFormat = 1

// Members of a packed environment.
const (
	packedAbout  = "environment.json"
	packedPrefix = "prefix"
	packedLock   = "lock"
	packedSums   = "sums.json"
)

// packedHeader says what a packed environment is.
type packedHeader struct {
	Format        int           `json:"format"`
	Name          string        `json:"name"`
	Stack         string        `json:"stack"`
	Platform      PlatformFacts `json:"platform"`
	Revision      string        `json:"revision"` // folder that it was built in; its path may be written into files
	PackDirectory string        `json:"pack_directory"`
	Backend       string        `json:"backend"`
	Stamp         stamp         `json:"stamp"`
	// Interpreters are links of the prefix that led to the Python it was made from.
	Interpreters []string `json:"interpreters,omitempty"`
}

// Packed is a packed environment.
type Packed struct {
	Environment string `json:"environment"`
	Stack       string `json:"stack"`
	File        string `json:"file"`
	Bytes       int64  `json:"bytes"`
	SHA256      string `json:"sha256"`
}

// PackName is the usual file name of a packed environment.
func PackName(environment Environment) string {
	return environment.Name + "_" + environment.Stack + ".tar.gz"
}

// Pack writes an environment to a tarball, compressed when the name of the file ends in .gz or .tgz.
func (s *Store) Pack(ctx context.Context, environment Environment, file string) (packed Packed, err error) {
	revision := s.revisionOf(environment)
	mark, err := readStamp(revision)
	if err != nil {
		return packed, fmt.Errorf("packing %s: %w", environment.Name, err)
	}
	if damage := mark.damage(revision); damage != "" {
		return packed, fmt.Errorf("packing %s: it is not whole: %s; build it again first", environment.Name, damage)
	}
	prefix := prefixOf(revision)
	if below, err := filepath.Rel(revision, prefix); err != nil || !filepath.IsLocal(below) {
		return packed, fmt.Errorf("packing %s: comfy-env built it, in %s; only what this program built can be packed: "+
			"build it below another environment root", environment.Name, prefix)
	}
	output, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return packed, fmt.Errorf("packing %s: %w", environment.Name, err)
	}
	defer func() {
		if err != nil {
			output.Close()
			os.Remove(output.Name())
			err = fmt.Errorf("packing %s into %s: %w", environment.Name, file, err)
		}
	}()
	sum := sha256.New()
	counter := &countingWriter{to: io.MultiWriter(output, sum)}
	var archive io.Writer = counter
	var zipped *gzip.Writer
	if lower := strings.ToLower(file); strings.HasSuffix(lower, ".gz") || strings.HasSuffix(lower, ".tgz") {
		// Most of an environment is compressed already or code: more effort gains little.
		if zipped, err = gzip.NewWriterLevel(counter, gzip.BestSpeed); err != nil {
			return packed, err
		}
		archive = zipped
	}
	writer := packWriter{ctx: ctx, tar: tar.NewWriter(archive), sums: map[string]string{}, prefix: prefix}
	header := packedHeader{Format: packFormat, Name: environment.Name, Stack: environment.Stack,
		Platform: PlatformFacts{OS: runtime.GOOS, Arch: runtime.GOARCH}, Revision: revision, PackDirectory: environment.PackDirectory,
		Backend: mark.Recipe.Backend, Stamp: *mark}
	if err = writer.environment(header, revision); err != nil {
		return packed, err
	}
	if err = writer.tar.Close(); err != nil {
		return packed, err
	}
	if zipped != nil {
		if err = zipped.Close(); err != nil {
			return packed, err
		}
	}
	if err = errors.Join(output.Chmod(0o644), output.Sync(), output.Close()); err != nil {
		return packed, err
	}
	if err = os.Rename(output.Name(), file); err != nil {
		return packed, err
	}
	return Packed{Environment: environment.Name, Stack: environment.Stack, File: file, Bytes: counter.bytes,
		SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// countingWriter counts what passes.
type countingWriter struct {
	to    io.Writer
	bytes int64
}

func (c *countingWriter) Write(content []byte) (int, error) {
	written, err := c.to.Write(content)
	c.bytes += int64(written)
	return written, err
}

// packWriter writes the members of one packed environment.
type packWriter struct {
	ctx    context.Context
	tar    *tar.Writer
	sums   map[string]string // by member
	prefix string
}

// environment writes all members.
func (w *packWriter) environment(header packedHeader, revision string) error {
	var members []string
	err := filepath.WalkDir(w.prefix, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// What Python compiles beside its modules is made again; conda's is part of the packages.
		if entry.IsDir() && entry.Name() == "__pycache__" && header.Backend != BackendPixi {
			return filepath.SkipDir
		}
		if header.Backend != BackendPixi && entry.Type()&fs.ModeSymlink != 0 && w.isInterpreter(path) {
			below, err := filepath.Rel(w.prefix, path)
			if err != nil {
				return err
			}
			header.Interpreters = append(header.Interpreters, filepath.ToSlash(below))
			return nil
		}
		members = append(members, path)
		return nil
	})
	if err != nil {
		return err
	}
	about, err := json.MarshalIndent(header, "", "  ")
	if err != nil {
		return err
	}
	if err := w.content(packedAbout, about); err != nil {
		return err
	}
	lock := uvLockOrPixis(header.Backend)
	if content, err := os.ReadFile(filepath.Join(revision, lock)); err == nil {
		if err := w.content(packedLock, content); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, path := range members {
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		if err := w.member(path); err != nil {
			return err
		}
	}
	sums, err := json.Marshal(w.sums)
	if err != nil {
		return err
	}
	return w.content(packedSums, sums)
}

func uvLockOrPixis(backend string) string {
	if backend == BackendPixi {
		return pixiLockName
	}
	return lockName
}

// isInterpreter recognises a link in the folder of programs that leads to a Python outside of the prefix.
func (w *packWriter) isInterpreter(link string) bool {
	target, err := filepath.EvalSymlinks(link)
	if err != nil || within(w.prefix, target) {
		return false
	}
	direct, err := os.Readlink(link)
	return err == nil && filepath.Dir(link) == filepath.Dir(prefixPython(w.prefix)) &&
		strings.HasPrefix(filepath.Base(link), "python") && filepath.IsAbs(direct)
}

// within reports whether a path lies in a folder, whose own path may lead through links.
func within(folder, path string) bool {
	for _, root := range []string{folder, evaluated(folder)} {
		if below, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(below) {
			return true
		}
	}
	return false
}

func evaluated(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// member writes one file, link or folder of the prefix.
func (w *packWriter) member(file string) error {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(w.prefix, file)
	if err != nil {
		return err
	}
	name := path.Join(packedPrefix, filepath.ToSlash(below))
	header := tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return w.tar.WriteHeader(&header)
	case info.Mode()&fs.ModeSymlink != 0:
		target, inside, err := w.link(file)
		if err != nil {
			return err
		}
		if inside {
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, target, 0o777
			w.sums[name] = linkSum(target)
			return w.tar.WriteHeader(&header)
		}
		if info, err = os.Stat(file); err != nil { // its content takes its place
			return err
		}
		header.Mode = int64(info.Mode().Perm())
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is %s, which can not be packed", file, info.Mode().Type())
	}
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := w.tar.WriteHeader(&header); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w.tar, sum), content); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	w.sums[name] = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// link is where a link of the prefix leads, relative to its folder, as long as that is in the prefix.
func (w *packWriter) link(file string) (target string, inside bool, err error) {
	target, err = os.Readlink(file)
	if err != nil {
		return "", false, err
	}
	if filepath.IsAbs(target) {
		below, err := filepath.Rel(filepath.Dir(file), target)
		if err != nil || !within(w.prefix, target) {
			return "", false, nil
		}
		target = below
	}
	name := path.Join(packedPrefix, filepath.ToSlash(mustRel(w.prefix, file)))
	return filepath.ToSlash(target), safeLink(name, filepath.ToSlash(target)) == nil, nil
}

// mustRel is a path of the walk below the folder that was walked.
func mustRel(folder, file string) string {
	return strings.TrimPrefix(strings.TrimPrefix(file, folder), string(filepath.Separator))
}

// linkSum is the sum of a link.
func linkSum(target string) string {
	sum := sha256.Sum256([]byte("link\x00" + target))
	return hex.EncodeToString(sum[:])
}

// safeLink refuses a link that could lead out of the prefix: it goes up first and never again, and not out of it.
func safeLink(name, target string) error {
	parts := strings.Split(target, "/")
	down := slices.IndexFunc(parts, func(part string) bool { return part != ".." })
	if down < 0 {
		down = len(parts)
	}
	resolved := path.Join(path.Dir(name), target)
	if target == "" || path.IsAbs(target) || strings.ContainsAny(target, "\x00\\") || slices.Contains(parts[down:], "..") ||
		resolved != packedPrefix && !strings.HasPrefix(resolved, packedPrefix+"/") {
		return fmt.Errorf("the link %s leads to %q, out of the environment", name, target)
	}
	return nil
}

// content writes a small file that the program itself makes.
func (w *packWriter) content(name string, content []byte) error {
	if err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}); err != nil {
		return err
	}
	if _, err := w.tar.Write(content); err != nil {
		return err
	}
	if name != packedSums {
		sum := sha256.Sum256(content)
		w.sums[name] = hex.EncodeToString(sum[:])
	}
	return nil
}
