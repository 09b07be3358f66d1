package spawn

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// failer is what testing.TB and rapid's T share.
type failer interface {
	Helper()
	Fatal(...any)
}

// testFiles makes memory files in this process, in the name of all parties.
type testFiles struct{}

func newTestFiles(failer) testFiles { return testFiles{} }

func (testFiles) folder() string { return "" }

func (testFiles) party(id string) Party { return Party{ID: id, PID: os.Getpid()} }

func (testFiles) make(t failer, id, content string) wire.File {
	t.Helper()
	fd, err := unix.MemfdCreate(id, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte(content)); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	return wire.File{ID: id, PID: 1, FD: fd, Inode: stat.Ino, Size: stat.Size}
}

// close is what its owner does when it destroys the file or dies.
func (testFiles) close(t failer, file wire.File) {
	t.Helper()
	if err := unix.Close(file.FD); err != nil {
		t.Fatal(err)
	}
}

// read is what a receiver sees.
func (testFiles) read(t failer, file wire.File) string {
	t.Helper()
	if file.PID != os.Getpid() {
		t.Fatal("the file is not offered by this process: ", file)
	}
	path := filepath.Join("/proc/self/fd", strconv.Itoa(file.FD))
	opened, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	content, err := io.ReadAll(opened)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// wrong are files that are not what a message says.
func (f testFiles) wrong(t *testing.T, good wire.File) map[string]wire.File {
	t.Helper()
	change := func(change func(*wire.File)) wire.File {
		file := good
		file.ID = "host-2"
		change(&file)
		return file
	}
	pipe, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = pipe.Close(), writer.Close() })
	fifo := filepath.Join(temporaryFolder(t), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	placed, err := unix.Open(fifo, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(placed) })
	return map[string]wire.File{
		"a descriptor that is not open": change(func(f *wire.File) { f.FD = 99999 }),
		"a pipe":                        change(func(f *wire.File) { f.FD = int(pipe.Fd()) }),
		"a FIFO that blocks":            change(func(f *wire.File) { f.FD = placed }),
		"another inode":                 change(func(f *wire.File) { f.Inode++ }),
		"a larger size":                 change(func(f *wire.File) { f.Size++ }),
		"a negative size":               change(func(f *wire.File) { f.Size = -1 }),
		"a negative descriptor":         change(func(f *wire.File) { f.FD = -1 }),
		"an ID without a number":        change(func(f *wire.File) { f.ID = "host" }),
		"an ID without an owner":        change(func(f *wire.File) { f.ID = "-1" }),
		"no ID":                         change(func(f *wire.File) { f.ID = "" }),
	}
}

func TestAFileOfAnotherProcessIsOpenedAndOutlivesIt(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	made := ask[struct {
		FD    int
		Inode uint64
		Size  int64
	}](t, worker, "memfd", anything{"content": "made by Python"})
	holder := NewHolder(HolderOptions{QuotaBytes: 1 << 30})
	defer holder.Close()
	party := Party{ID: worker.Record().Worker, PID: worker.PythonPID()}
	shipment := receive(t, holder, party, wire.File{ID: party.ID + "-1", FD: made.FD, Inode: made.Inode, Size: made.Size})
	if err := worker.Kill(testContext(t)); err != nil {
		t.Fatal(err)
	}
	holder.Drop(party.ID)
	if got := (testFiles{}).read(t, shipment.Deliver(Party{ID: "host"})[0]); got != "made by Python" {
		t.Errorf("content %q", got)
	}
}

func TestTheDefaultQuotaFollowsTheTightestLimit(t *testing.T) {
	folder := temporaryFolder(t)
	write := func(path, content string) {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	available := func() int64 {
		return availableMemory(filepath.Join(folder, "proc"), filepath.Join(folder, "cgroup"))
	}
	if got := available(); got != math.MaxInt64 {
		t.Errorf("without any file %d", got)
	}
	write("proc/meminfo", "MemTotal:  100 kB\nMemAvailable:   80 kB\n")
	write("proc/self/cgroup", "4:cpu,memory:/a/b\n0::/c/d\n")
	if got := available(); got != 80<<10 {
		t.Errorf("without limits %d", got)
	}
	write("cgroup/c/d/memory.max", "max\n")
	write("cgroup/c/d/memory.current", "10\n")
	write("cgroup/c/memory.max", "70000\n")
	write("cgroup/c/memory.current", "20000\n")
	write("cgroup/c/memory.stat", "anon 1\ninactive_file 5000\n")
	if got := available(); got != 55000 {
		t.Errorf("with a version 2 limit on the parent %d", got)
	}
	write("cgroup/memory/memory.limit_in_bytes", "30000\n") // the container's own group, as the mount's root
	write("cgroup/memory/memory.usage_in_bytes", "40000\n")
	write("cgroup/memory/memory.stat", "total_inactive_file 20000\n")
	if got := available(); got != 10000 {
		t.Errorf("with a version 1 limit %d", got)
	}
	if quota := DefaultMemoryFileQuota(); quota < 16<<20 || quota > 1<<50 {
		t.Errorf("this machine's quota is %d", quota)
	}
}
