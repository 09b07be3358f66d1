package demo

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// newEnded is a demonstration whose supervisor is said to have ended.
func newEnded(t *testing.T) *run {
	t.Helper()
	folder := t.TempDir()
	r := &run{seen: make(map[string]struct{}), pids: make(map[int]struct{})}
	r.options.Report = func(Event) {}
	r.instance = &instance{folder: folder, runtime: filepath.Join(folder, "run")}
	r.instance.socket = filepath.Join(r.instance.runtime, "supervisor.sock")
	if err := os.Mkdir(r.instance.runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

// problemsOf returns what was found to be left.
func problemsOf(t *testing.T, r *run) []string {
	t.Helper()
	var texts []string
	for _, problem := range r.nothingLeft(&Step{Seen: make(map[string]any)}) {
		texts = append(texts, problem.Error())
	}
	return texts
}

// TestEverythingThatIsLeftIsSeen runs alone: a memory file of this process would be every other test's as well.
func TestEverythingThatIsLeftIsSeen(t *testing.T) {
	r := newEnded(t)
	if problems := problemsOf(t, r); len(problems) != 0 {
		t.Fatalf("left before there was anything: %v", problems)
	}
	expect := func(words string) {
		t.Helper()
		problems := problemsOf(t, r)
		if len(problems) == 0 || !strings.Contains(strings.Join(problems, "\n"), words) {
			t.Errorf("%q is not among what is left: %v", words, problems)
		}
	}

	listener, err := net.Listen("unix", r.instance.socket)
	if err != nil {
		t.Fatal(err)
	}
	expect("sockets left")
	expect("files left")
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}

	memory, err := unix.MemfdCreate("comfy-supervisor-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	expect("memory_files left")
	if err := unix.Close(memory); err != nil {
		t.Fatal(err)
	}

	r.seen["0123456789abcdef"] = struct{}{}
	command := exec.Command("sleep", "600")
	command.Env = []string{"COMFY_SUPERVISOR_WORKER=0123456789abcdef"}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	expect("of worker 0123456789abcdef")
	delete(r.seen, "0123456789abcdef")
	r.pids[command.Process.Pid] = struct{}{}
	expect("processes left: process ")
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		t.Error("a killed process ended well")
	}
	if problems := problemsOf(t, r); len(problems) != 0 {
		t.Errorf("left when everything was gone: %v", problems)
	}
}
