package envbuild

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

// identify returns a file's identity, the number of its names and its size.
func identify(path string, info fs.FileInfo) (fileID, uint64, int64) {
	plain := fileID{}
	if !info.Mode().IsRegular() {
		return plain, 1, 0
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return plain, 1, info.Size()
	}
	handle, err := windows.CreateFile(name, 0, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil,
		windows.OPEN_EXISTING, 0, 0)
	if err != nil {
		return plain, 1, info.Size()
	}
	defer windows.CloseHandle(handle)
	var found windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(handle, &found); err != nil {
		return plain, 1, info.Size()
	}
	id := fileID{uint64(found.VolumeSerialNumber), uint64(found.FileIndexHigh)<<32 | uint64(found.FileIndexLow)}
	return id, uint64(found.NumberOfLinks), info.Size()
}
