package envbuild

import (
	"io/fs"
	"path/filepath"
)

// DiskUsage adds up folders: each file once, however many names it has in them; and of these the ones that have no
// name elsewhere, in an installer's cache say, which are what deleting the folders would give back. Both in bytes.
func DiskUsage(folders ...string) (total, exclusive int64) {
	type counted struct {
		bytes        int64
		names, links uint64
	}
	files := map[fileID]*counted{}
	for _, folder := range folders {
		// What can not be read is not counted; a deletion would say why it fails.
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			info, err := entry.Info()
			if err != nil {
				return nil
			}
			id, links, bytes := identify(path, info)
			if links <= 1 || entry.IsDir() {
				total += bytes
				exclusive += bytes
				return nil
			}
			if files[id] == nil {
				files[id] = &counted{bytes: bytes, links: links}
				total += bytes
			}
			files[id].names++
			return nil
		})
	}
	for _, file := range files {
		if file.names >= file.links {
			exclusive += file.bytes
		}
	}
	return total, exclusive
}

// fileID tells files apart, whatever they are called.
type fileID struct{ device, number uint64 }
