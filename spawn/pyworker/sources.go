package pyworker

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Sources are files to lay out: their content by slash-separated path.
type Sources map[string][]byte

// Layout makes sure that the folder <cache>/python/<name>-<hash of the content> holds exactly these files, and returns
// its absolute path. The folder appears by a rename, so it is never seen half written; one that was damaged meanwhile
// is replaced. Python may add its byte code.
func (s Sources) Layout(cache, name string) (string, error) {
	parent, err := filepath.Abs(filepath.Join(cache, "python"))
	if err != nil {
		return "", fmt.Errorf("laying out Python in %s: %w", cache, err)
	}
	target := filepath.Join(parent, name+"-"+s.hash())
	if s.intact(target) {
		return target, nil
	}
	if err := s.write(parent, target); err != nil {
		if s.intact(target) { // another process was faster
			return target, nil
		}
		return "", fmt.Errorf("laying out Python in %s: %w (choose another cache folder with COMFY_SUPERVISOR_CACHE_DIR)", target, err)
	}
	return target, nil
}

// hash names the content: 24 hexadecimal digits.
func (s Sources) hash() string {
	digest := sha256.New()
	part := func(content []byte) {
		_ = binary.Write(digest, binary.BigEndian, uint64(len(content))) // a hash does not fail
		digest.Write(content)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		part([]byte(name))
		part(s[name])
	}
	return hex.EncodeToString(digest.Sum(nil))[:24]
}

// intact reports whether every file is there with its content.
func (s Sources) intact(target string) bool {
	for name, content := range s {
		found, err := os.ReadFile(filepath.Join(target, filepath.FromSlash(name)))
		if err != nil || !bytes.Equal(found, content) {
			return false
		}
	}
	return true
}

func (s Sources) write(parent, target string) (err error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	fresh, damaged := filepath.Join(scratch, "fresh"), filepath.Join(scratch, "damaged")
	for name, content := range s {
		file := filepath.Join(fresh, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	err = os.Rename(fresh, target)
	if err == nil || s.intact(target) {
		return nil
	}
	if moved := os.Rename(target, damaged); moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		return errors.Join(err, moved)
	}
	err = os.Rename(fresh, target)
	if err != nil && s.intact(target) {
		return nil
	}
	return err
}
