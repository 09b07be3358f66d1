package envbuild

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// packedLimit bounds what is read into memory of a packed environment: its description, its lock file, its sums.
const packedLimit = 256 << 20

// packedArchive is a packed environment that is being read.
type packedArchive struct {
	name   string
	file   *os.File
	hash   interface{ Sum([]byte) []byte }
	all    io.Reader // the file's bytes, counted into the hash
	tar    *tar.Reader
	header packedHeader
	sums   map[string]string // of what was read
	whole  bool              // all of it was read
}

// openPacked opens a packed environment and reads what it is.
func openPacked(file string) (*packedArchive, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	archive := &packedArchive{name: filepath.Base(file), file: opened, hash: hash, sums: map[string]string{}}
	buffered := bufio.NewReaderSize(io.TeeReader(opened, hash), 1<<20)
	archive.all = buffered
	var content io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if content, err = gzip.NewReader(buffered); err != nil {
			opened.Close()
			return nil, fmt.Errorf("reading it: %w", err)
		}
	}
	archive.tar = tar.NewReader(content)
	if err := archive.readHeader(); err != nil {
		opened.Close()
		return nil, err
	}
	return archive, nil
}

func (a *packedArchive) readHeader() error {
	member, err := a.tar.Next()
	if err != nil || member.Name != packedAbout {
		return fmt.Errorf("it is no packed environment (%s comes first in one): %w", packedAbout, cmpError(err, errors.New("it begins otherwise")))
	}
	content, err := a.small()
	if err != nil {
		return err
	}
	var format struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(content, &format); err != nil {
		return fmt.Errorf("reading %s: %w", packedAbout, err)
	}
	if format.Format != packFormat {
		return fmt.Errorf("its format is %d, and this program knows %d; use the program that packed it", format.Format, packFormat)
	}
	if err := json.Unmarshal(content, &a.header); err != nil {
		return fmt.Errorf("reading %s: %w", packedAbout, err)
	}
	if a.header.Stamp.Format != storeFormat || !isPythonVersion(numericVersion(a.header.Stamp.Python)) {
		return fmt.Errorf("its stamp can not be used (format %d, Python %q)", a.header.Stamp.Format, a.header.Stamp.Python)
	}
	for _, link := range a.header.Interpreters {
		if folder, name := path.Split(link); folder != "bin/" || !strings.HasPrefix(name, "python") || !filepath.IsLocal(name) {
			return fmt.Errorf("%q is no interpreter of an environment", link)
		}
	}
	sum := sha256.Sum256(content)
	a.sums[packedAbout] = hex.EncodeToString(sum[:])
	return nil
}

func cmpError(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// small reads a member into memory.
func (a *packedArchive) small() ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(a.tar, packedLimit+1))
	if err == nil && len(content) > packedLimit {
		err = errors.New("a description of more than 256 MiB")
	}
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return content, nil
}

// extract writes the prefix, which must not be there, and the lock file, and holds every file against its sum. It
// writes nowhere else, whatever the names and links in the archive say.
func (a *packedArchive) extract(ctx context.Context, prefix, lock string) error {
	if err := os.MkdirAll(prefix, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(prefix)
	if err != nil {
		return err
	}
	defer root.Close()
	var expected map[string]string
	for expected == nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		member, err := a.tar.Next()
		if err != nil {
			return fmt.Errorf("it ends before its sums: %w", err)
		}
		switch {
		case member.Name == packedSums && member.Typeflag == tar.TypeReg:
			content, err := a.small()
			if err != nil {
				return err
			}
			if err := json.Unmarshal(content, &expected); err != nil || expected == nil {
				return fmt.Errorf("its sums can not be read: %w", cmpError(err, errors.New("there are none")))
			}
		case member.Name == packedLock && member.Typeflag == tar.TypeReg && a.sums[packedLock] == "":
			content, err := a.small()
			if err != nil {
				return err
			}
			sum := sha256.Sum256(content)
			a.sums[packedLock] = hex.EncodeToString(sum[:])
			if err := os.WriteFile(lock, content, 0o644); err != nil {
				return err
			}
		default:
			if err := a.member(root, member); err != nil {
				return err
			}
		}
	}
	if err := a.drain(); err != nil {
		return err
	}
	return a.compare(expected)
}

// member writes one file, link or folder.
func (a *packedArchive) member(root *os.Root, member *tar.Header) error {
	name := strings.TrimSuffix(member.Name, "/")
	below, inside := strings.CutPrefix(name, packedPrefix+"/")
	if name == packedPrefix && member.Typeflag == tar.TypeDir {
		return nil
	}
	if !inside || path.Clean(name) != name || strings.ContainsAny(name, "\x00\\") || !filepath.IsLocal(filepath.FromSlash(below)) {
		return fmt.Errorf("it holds %q, which is no place in an environment; nothing of it is used", member.Name)
	}
	below = filepath.FromSlash(below)
	// Links are made in real folders only: what goes up from one then ends where it seems to.
	for folder := path.Dir(name); folder != packedPrefix; folder = path.Dir(folder) {
		if strings.HasPrefix(a.sums[folder], linkMark) {
			return fmt.Errorf("it holds %q below a link; nothing of it is used", member.Name)
		}
	}
	mode := fs.FileMode(member.Mode).Perm()
	switch member.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(below, mode|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case tar.TypeSymlink:
		if err := safeLink(name, member.Linkname); err != nil {
			return fmt.Errorf("%w; nothing of it is used", err)
		}
		a.sums[name] = linkMark + linkSum(member.Linkname)
		return root.Symlink(filepath.FromSlash(member.Linkname), below)
	case tar.TypeReg:
		file, err := root.OpenFile(below, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode|0o600)
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(io.MultiWriter(file, sum), a.tar)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("unpacking %s: %w", member.Name, err)
		}
		a.sums[name] = hex.EncodeToString(sum.Sum(nil))
		return root.Chtimes(below, member.ModTime, member.ModTime)
	}
	return fmt.Errorf("it holds %q of a kind that no environment has (%q); nothing of it is used", member.Name, member.Typeflag)
}

// linkMark begins the sums of links, as long as the archive is read.
const linkMark = "link "

// drain reads the rest, so that the whole file is counted into its hash.
func (a *packedArchive) drain() error {
	if _, err := a.tar.Next(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("it goes on behind its sums: %w", cmpError(err, errors.New("something was added to it")))
	}
	if _, err := io.Copy(io.Discard, a.all); err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	a.whole = true
	return nil
}

// compare holds what was read against the sums.
func (a *packedArchive) compare(expected map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(a.sums)) {
		if got := strings.TrimPrefix(a.sums[name], linkMark); got != expected[name] {
			return fmt.Errorf("%s does not have the hash that it was packed with; it is not used", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		if a.sums[name] == "" {
			return fmt.Errorf("%s is missing in it; it is not used", name)
		}
	}
	return nil
}

// sum is the SHA-256 of the file, once all of it was read.
func (a *packedArchive) sum() string {
	if !a.whole {
		return ""
	}
	return hex.EncodeToString(a.hash.Sum(nil))
}

func (a *packedArchive) close() { a.file.Close() }
