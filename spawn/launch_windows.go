package spawn

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/windows"
)

// ownBinary is this program's file; a running one can not be deleted or replaced here, only renamed.
func ownBinary() (string, error) { return os.Executable() }

// launcherDirectory is beside the worker's folder: a working directory can not be removed here.
func launcherDirectory(folder string) string { return filepath.Dir(folder) }

// launcherAttributes give a launcher no console and no part in our console's events.
func launcherAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW, HideWindow: true}
}

func dialUnix(context.Context, string) (net.Conn, error) {
	return nil, errors.New("launchers listen on loopback TCP on this system")
}
