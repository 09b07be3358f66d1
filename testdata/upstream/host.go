package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofrs/flock"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/pyworker/pythontest"
)

// HostVariable names an interpreter that runs ComfyUI and has pytest and websocket-client, so that none is made.
const HostVariable = "COMFY_SUPERVISOR_TEST_COMFYUI_PYTHON"

// newestHost is the newest minor version of Python 3 that ComfyUI 0.30.0 recommends.
const newestHost = 13

// hostPackages come besides ComfyUI's own requirements: a torch that runs without a GPU, and what its tests need.
var hostPackages = []string{
	"torch==2.10.0", "torchvision==0.25.0", "torchaudio==2.10.0",
	"pytest", "pytest-asyncio", "pytest-aiohttp", "websocket-client",
}

// Host returns an interpreter that runs ComfyUI: the one that HostVariable names, else one of its own, about 3 GB to
// download, made at the first use on this machine and kept in the user's cache folder.
func Host(t testing.TB) string {
	t.Helper()
	if python := os.Getenv(HostVariable); python != "" {
		return python
	}
	requirements := filepath.Join(ComfyUI(t), "requirements.txt")
	wanted, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatal(err)
	}
	found := pythontest.Interpreters(t)
	base := found[len(found)-1]
	if base.Minor > newestHost {
		base = found[0]
	}
	uv := filepath.Join(filepath.Dir(pythontest.Environment(t, base, "uv")), "uv")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("finding the folder for test environments: %v", err)
	}
	key := sha256.Sum256([]byte(base.Path + "\n" + string(wanted) + "\n" + strings.Join(hostPackages, "\n")))
	prefix := filepath.Join(cache, "comfy-supervisor-tests", "comfyui-host-"+hex.EncodeToString(key[:6]))
	lock := flock.New(prefix + ".lock")
	if err := lock.Lock(); err != nil {
		t.Fatalf("waiting for whoever makes %s: %v", prefix, err)
	}
	defer func() { _ = lock.Unlock() }()
	python, complete := filepath.Join(prefix, "bin", "python"), prefix+".complete"
	if _, err := os.Stat(complete); err == nil {
		return python
	}
	if err := os.RemoveAll(prefix); err != nil {
		t.Fatalf("removing a half-made %s: %v", prefix, err)
	}
	for _, words := range [][]string{
		{"venv", "--quiet", "--python", base.Path, prefix},
		append([]string{"pip", "install", "--quiet", "--python", python, "-r", requirements}, hostPackages...),
	} {
		if said, err := exec.CommandContext(t.Context(), uv, words...).CombinedOutput(); err != nil {
			t.Fatalf("making the environment of ComfyUI (this needs a package index): uv %s: %v\n%s", strings.Join(words, " "), err, said)
		}
	}
	if err := os.WriteFile(complete, []byte(fmt.Sprintf("ComfyUI %s\n", ComfyUIVersion)), 0o644); err != nil {
		t.Fatal(err)
	}
	return python
}
