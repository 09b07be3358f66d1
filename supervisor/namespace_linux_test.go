package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestAHostInAContainerOfItsOwnIsRefused(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	client := exec.Command(os.Args[0], "test-client", options.config().Socket)
	client.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		client.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	said, err := client.Output()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this system lets its users make no PID namespaces; identify is tested without one")
	}
	if err == nil || !strings.Contains(string(said), "another PID namespace") {
		t.Errorf("it said %q and ended with %v", said, err)
	}
}
