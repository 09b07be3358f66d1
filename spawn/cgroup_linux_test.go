package spawn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAWorkersControlGroupGetsItsLimitsOnMemory(t *testing.T) {
	group := filepath.Join(t.TempDir(), cgroupPrefix+strings.Repeat("ab", 16))
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := HoldMemory(group, 8<<30, 9<<30); err == nil || !strings.Contains(err.Error(), "memory controller is not delegated") {
		t.Errorf("without the controller: %v", err)
	}
	for _, name := range []string{"memory.high", "memory.max"} { // as the kernel makes them
		if err := os.WriteFile(filepath.Join(group, name), []byte("max\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := HoldMemory(group, 8<<30, 9<<30); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.high": "8589934592", "memory.max": "9663676416"} {
		content, err := os.ReadFile(filepath.Join(group, name))
		if err != nil || !strings.HasPrefix(string(content), want) {
			t.Errorf("%s is %q, %v", name, content, err)
		}
	}
	for _, other := range []string{"", "/sys/fs/cgroup", filepath.Dir(group)} {
		if err := HoldMemory(other, 1, 1); err == nil {
			t.Errorf("%q is no group of ours, and was limited", other)
		}
	}
}
