package envbuild

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutOverride asks a process of this binary to meet the permissions of files, which root does not.
const withoutOverride = "TEST_WITHOUT_OVERRIDE"

func init() {
	beforeCommands = func() {
		if os.Getenv(withoutOverride) == "" {
			return
		}
		if err := dropOverride(); err != nil {
			panic(err)
		}
	}
}

// dropOverride starts this program again without root's capabilities of overriding permissions: of those, a thread that
// executes a program keeps what its bounding set has.
func dropOverride() error {
	runtime.LockOSThread()
	for _, capability := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return err
		}
	}
	if err := os.Unsetenv(withoutOverride); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

func TestASecondUserOfARootIsToldWhoseItIs(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to another user")
	}
	m := newMachine(t)
	m.index.wheel("small", "1.0", nil)
	pack := m.pack("one", "[pypi-dependencies]\nsmall = \"*\"\n")
	m.mustBuild(OutcomeBuilt, pack)
	const other = 54321
	err := filepath.WalkDir(m.config.Root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, other, other)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []string{pack, m.pack("two", "")} {
		builder := m.startBuilderWith([]string{withoutOverride + "=1"}, one)
		events, code := builder.wait()
		if code != 1 || len(events) == 0 {
			t.Fatalf("exit code %d, events %+v", code, events)
		}
		last := events[len(events)-1]
		if last.Kind != EventFailed || !strings.Contains(last.Text, "permission denied; "+m.config.Root) ||
			!strings.Contains(last.Text, "belongs to the user 54321: set COMFY_ENV_ROOT to a folder of your own") {
			t.Errorf("%+v", last)
		}
	}
	// Whoever may write goes on with what the other has built.
	if result := m.mustBuild(OutcomeUnchanged, pack); result.Prefix == "" {
		t.Errorf("%+v", result)
	}
}
