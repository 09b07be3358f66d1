package spawn

import "syscall"

// ownBinary is this program, whatever became of its file: `go run` deletes it, an upgrade replaces it.
func ownBinary() (string, error) { return "/proc/self/exe", nil }

func launcherDirectory(folder string) string { return folder }

// launcherAttributes give a launcher its own session: no terminal and no signal to our group reaches it.
func launcherAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
