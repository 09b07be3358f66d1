package supervisor

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// memoryFile makes a memory file with bytes in it, as a client does.
func memoryFile(t *testing.T, id string, size int) wire.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { file.Close() })
	if _, err := file.Write([]byte(strings.Repeat("x", size))); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	return wire.File{ID: id, PID: os.Getpid(), FD: fd, Inode: stat.Ino, Size: int64(size)}
}

func TestTheMemoryFilesOfACallThatIsCancelledWhileItWaitsGoBackToTheirOwner(t *testing.T) {
	options := newTestOptions(t)
	daemon := startDaemon(t, options)
	conn := dialRaw(t, options)
	helloRaw(t, conn)
	file := memoryFile(t, strings.Repeat("0", 32)+"-1", 100<<10)
	sendRaw(t, conn, wire.Message{ID: 2, Method: api.MethodMemoryReserve, Params: wire.Params(api.BytesParams{Bytes: file.Size})})
	if reply := readMessage(t, conn); reply.Error != nil {
		t.Fatal(reply.Error)
	}
	sendRaw(t, conn, wire.Message{ID: 3, Method: api.MethodCall, Files: []wire.File{file},
		Params: wire.Params(api.CallParams{Environment: "pack", Node: "Echo"})})
	sendRaw(t, conn, wire.Message{Method: api.MethodCancel, Call: 3})
	var cancelled, freed bool
	for !cancelled || !freed {
		message := readMessage(t, conn)
		switch {
		case message.ID == 3 && message.Error != nil && message.Error.Data.Kind == wire.KindCancelled:
			cancelled = true
		case message.Method == api.MethodMemoryReleased && strings.Contains(string(message.Params), file.ID):
			freed = true
		default:
			t.Fatalf("got %+v", message)
		}
	}
	if usage := daemon.daemon.files.Usage(); usage.Files != 0 || usage.ReservedBytes != file.Size {
		t.Errorf("got %+v", usage)
	}
}

func TestTheMemoryFilesOfACallThatFailsToStartGoBackToTheirOwner(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	conn := dialRaw(t, options)
	helloRaw(t, conn)
	file := memoryFile(t, strings.Repeat("0", 32)+"-1", 100<<10)
	sendRaw(t, conn, wire.Message{ID: 2, Method: api.MethodCall, Files: []wire.File{file},
		Params: wire.Params(api.CallParams{Environment: "broken", Node: "Echo"})})
	var failed, freed bool
	for !failed || !freed {
		message := readMessage(t, conn)
		failed = failed || message.ID == 2 && message.Error != nil
		freed = freed || message.Method == api.MethodMemoryReleased && strings.Contains(string(message.Params), file.ID)
	}
}

func TestAMemoryFileThatIsNotTheOneNamedIsRefused(t *testing.T) {
	options := newTestOptions(t)
	startDaemon(t, options)
	conn := dialRaw(t, options)
	helloRaw(t, conn)
	good := memoryFile(t, strings.Repeat("0", 32)+"-1", 4096)
	for name, file := range map[string]wire.File{
		"another inode": {ID: good.ID, FD: good.FD, Inode: good.Inode + 1, Size: good.Size},
		"a larger size": {ID: good.ID, FD: good.FD, Inode: good.Inode, Size: good.Size + 1},
		"no descriptor": {ID: good.ID, FD: 1 << 20, Inode: good.Inode, Size: good.Size},
		"an odd ID":     {ID: "..", FD: good.FD, Inode: good.Inode, Size: good.Size},
	} {
		sendRaw(t, conn, wire.Message{ID: 2, Method: api.MethodCall, Files: []wire.File{file},
			Params: wire.Params(api.CallParams{Environment: "pack", Node: "Echo"})})
		refused, freed := false, file.ID == ".." // which names no owner
		for !refused || !freed {
			switch reply := readMessage(t, conn); {
			case reply.Error != nil && reply.Error.Data.Kind == wire.KindValue:
				refused = true
			case reply.Method == api.MethodMemoryReleased && strings.Contains(string(reply.Params), file.ID):
				freed = true
			default:
				t.Fatalf("%s: got %+v", name, reply)
			}
		}
	}
}
