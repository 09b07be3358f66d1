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
	"time"
)

// packedLimit bounds what is read into memory of a packed environment: its description, its lock file, its sums.
const packedLimit = 256 << 20

// Unpack makes a packed environment the one of the manifest among work that has its name. Nothing is downloaded or
// installed. sum is the SHA-256 that the file must have, "" for any.
func (b *Builder) Unpack(ctx context.Context, work []Work, file, sum string) Result {
	begin := time.Now()
	result := Result{Manifest: file}
	outcome, err := b.unpack(ctx, work, file, sum, &result)
	result.Outcome, result.Seconds = outcome, time.Since(begin).Seconds()
	if err != nil {
		result.Outcome = OutcomeFailed
		if ctx.Err() != nil {
			result.Outcome, err = OutcomeCancelled, fmt.Errorf("cancelled: %w", ctx.Err())
		}
		result.Err = fmt.Errorf("unpacking %s: %w", file, err)
		result.Error = result.Err.Error()
		b.report(EventFailed, result.Environment, result.Error)
		return result
	}
	b.report(EventBuilt, result.Environment, outcome+" in "+time.Since(begin).Round(10*time.Millisecond).String())
	return result
}

func (b *Builder) unpack(ctx context.Context, work []Work, file, sum string, result *Result) (string, error) {
	archive, err := openPacked(file)
	if err != nil {
		return "", err
	}
	defer archive.close()
	header := archive.header
	result.Environment, result.Stack = header.Name, header.Stack
	plan, err := b.packedPlan(work, header)
	if err != nil {
		return "", err
	}
	result.Manifest, result.Lines, result.Plan = plan.Manifest, plan.Lines, plan
	directory := b.store.directory(plan)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", fmt.Errorf("making the environment's folder: %w; set COMFY_ENV_ROOT to a folder that can be written", err)
	}
	hold, err := b.lock(ctx, plan, directory)
	if err != nil {
		return "", err
	}
	defer hold.release()
	if revision, mark, why := b.check(plan); len(why) == 0 {
		return OutcomeUnchanged, b.register(plan, revision, mark, result)
	}
	if err := removeIncomplete(directory); err != nil {
		return "", err
	}
	if whole, mark := wholeRevision(directory, plan.Hash); whole != "" {
		return OutcomeReused, b.adopt(plan, whole, mark, result)
	}
	revision, mark, err := b.place(ctx, plan, directory, archive, sum)
	if err != nil {
		return "", err
	}
	return OutcomeUnpacked, b.adopt(plan, revision, mark, result)
}

// packedPlan is the plan of the manifest that a packed environment is of, if it is the one that was packed.
func (b *Builder) packedPlan(work []Work, header packedHeader) (*Plan, error) {
	if reason := samePlatform(header.Platform); reason != "" {
		return nil, errors.New(reason)
	}
	var names []string
	at := -1
	for i, one := range work {
		names = append(names, one.Found.Name)
		if one.Found.Name == header.Name {
			at = i
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("it is of the environment %s, and the packs named have %s; name its pack", header.Name, cmpNone(strings.Join(names, ", ")))
	}
	plan, err := b.Plan(work[at])
	if err != nil {
		return nil, err
	}
	if plan.Stack != header.Stack {
		return nil, fmt.Errorf("it is for the stack %s, and this host needs %s; pack one that was built for this host's facts", header.Stack, plan.Stack)
	}
	recipe, err := packMoves(header, plan, "").recipe(header.Stamp.Recipe)
	if err != nil {
		return nil, fmt.Errorf("reading its plan: %w", err)
	}
	packed := Plan{Name: header.Name, Recipe: recipe}
	if err := packed.seal(); err != nil {
		return nil, err
	}
	if packed.Hash == plan.Hash {
		return plan, nil
	}
	inputs := map[string]string{}
	moved := packMoves(header, plan, "")
	for name, value := range header.Stamp.Inputs {
		inputs[moved.path(name)] = value
	}
	changes := changedInputs(inputs, plan.Inputs)
	if len(changes) == 0 {
		changes = []string{"its plan differs"}
	}
	return nil, fmt.Errorf("it does not fit: since it was packed, %s", strings.Join(changes, "; "))
}

// packMoves are the folders that have other places here. revision is "" as long as it has none.
func packMoves(header packedHeader, plan *Plan, revision string) moves {
	list := moves{{header.PackDirectory, plan.PackDirectory}}
	if revision != "" {
		list = append(list, move{header.Revision, revision})
	}
	return list.needed()
}

// place unpacks an environment into a new revision and completes it with its stamp.
func (b *Builder) place(ctx context.Context, plan *Plan, directory string, archive *packedArchive, sum string) (made string, mark *stamp, err error) {
	header := archive.header
	_, next, err := revisions(directory, plan.Hash)
	if err != nil {
		return "", nil, err
	}
	revision := filepath.Join(directory, fmt.Sprintf("%s-%d", plan.Hash, next))
	conda := header.Backend == BackendPixi
	if conda {
		if filepath.Clean(header.Revision) != filepath.Join(directory, filepath.Base(header.Revision)) || exists(header.Revision) {
			return "", nil, fmt.Errorf("conda writes the place of an environment into its files: it can only be unpacked as %s; "+
				"set COMFY_ENV_ROOT to %s", header.Revision, filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(header.Revision)))))
		}
		revision = filepath.Clean(header.Revision)
	}
	base := interpreter{Executable: condaPython(pixiPrefix(revision)), Version: header.Stamp.Python}
	if !conda {
		chosen, err := findPython(ctx, plan.Recipe.Python, b.facts.Python, b.configuration.Environ, b.prober)
		if err != nil {
			return "", nil, err
		}
		base = chosen.interpreter
	}
	if err := os.Mkdir(revision, 0o755); err != nil {
		return "", nil, fmt.Errorf("making a revision of %s: %w", plan.Name, err)
	}
	defer func() {
		if err != nil {
			if removal := removeRevision(revision); removal != nil {
				err = errors.Join(err, removal)
			}
		}
	}()
	prefix := filepath.Join(revision, packedPrefix)
	if conda {
		prefix = pixiPrefix(revision)
	}
	b.report(EventStep, plan.Name, "unpacking")
	if err := archive.extract(ctx, prefix, filepath.Join(revision, plan.lockName())); err != nil {
		return "", nil, err
	}
	if got := archive.sum(); sum != "" && (got == "" || !strings.EqualFold(got, sum)) {
		return "", nil, fmt.Errorf("the file has sha256 %s and not %s; it is not used", got, sum)
	}
	moved := packMoves(header, plan, revision)
	if !conda {
		if err := rebase(prefix, base, header.Interpreters); err != nil {
			return "", nil, err
		}
		if err := relocate(prefix, base.Version, moved); err != nil {
			return "", nil, err
		}
	}
	probed, err := runProbe(ctx, prefixPython(prefix))
	if err != nil {
		return "", nil, fmt.Errorf("the environment does not start: %w", err)
	}
	if !versionMatches(probed.Version, plan.Recipe.Python) {
		return "", nil, fmt.Errorf("the environment has Python %s, and %s is needed", probed.Version, plan.Recipe.Python)
	}
	mark = &stamp{Format: storeFormat, PlanHash: plan.Hash, Recipe: plan.Recipe, Inputs: plan.Inputs, Interpreter: base.Executable,
		Python: base.Version, Received: moved.received(header.Stamp.Received), Entries: header.Stamp.Entries, BuiltAt: header.Stamp.BuiltAt,
		Seconds: header.Stamp.Seconds, Lines: append(slices.Clone(header.Stamp.Lines), "unpacked from "+archive.name)}
	if damage := mark.damage(revision); damage != "" {
		return "", nil, fmt.Errorf("the environment is not whole: %s", damage)
	}
	content, err := json.MarshalIndent(mark, "", "  ")
	if err != nil {
		return "", nil, fmt.Errorf("encoding the stamp of %s: %w", plan.Name, err)
	}
	if err := writeAtomically(filepath.Join(revision, stampName), append(content, '\n'), 0o644); err != nil {
		return "", nil, fmt.Errorf("completing %s: %w", plan.Name, err)
	}
	return revision, mark, b.store.saveLock(plan, revision, mark.Received)
}

// received moves the paths in what activation scripts had set.
func (m moves) received(got received) received {
	got.Activation = maps.Clone(got.Activation)
	for name, value := range got.Activation {
		got.Activation[name] = string(m.text([]byte(value)))
	}
	for _, list := range []*[]string{&got.PathFirst, &got.PathLast} {
		*list = slices.Clone(*list)
		for i, folder := range *list {
			(*list)[i] = m.path(folder)
		}
	}
	return got
}

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
