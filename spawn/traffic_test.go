//go:build linux

package spawn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

func TestSendingToAStoppedPythonNeverBlocks(t *testing.T) {
	bothWays(t, testSendingToAStoppedPythonNeverBlocks)
}

func testSendingToAStoppedPythonNeverBlocks(t *testing.T, spec Spec) {
	worker := launch(t, spec, newRecorder())
	if err := syscall.Kill(worker.PythonPID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Far more than sockets and gRPC's windows take, less than the backlog.
	const requests = 300
	body := make([]byte, 64<<10)
	replies := make(chan string, requests)
	sent := make(chan error, 1)
	go func() {
		for number := range requests {
			want := fmt.Sprint(number + 1)
			if _, err := worker.Peer().Start(&wire.Message{Method: "echo", Params: []byte(want)}, body, func(reply *wire.Message, body []byte, err error) {
				if err != nil || len(body) != 64<<10 {
					replies <- fmt.Sprint(len(body), err)
					return
				}
				replies <- string(reply.Result)
			}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		if err != nil {
			t.Fatal(err)
		}
	case <-testContext(t).Done(): // Python takes nothing meanwhile
		t.Error("sending waits for a Python that is stopped")
	}
	if err := syscall.Kill(worker.PythonPID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for number := range requests {
		if got := <-replies; got != fmt.Sprint(number+1) {
			t.Fatalf("reply %d is %s", number, got)
		}
	}
}

func TestTheBacklogOfAPythonThatNeverReadsIsBounded(t *testing.T) {
	bothWays(t, testTheBacklogOfAPythonThatNeverReadsIsBounded)
}

func testTheBacklogOfAPythonThatNeverReadsIsBounded(t *testing.T, spec Spec) {
	worker := launch(t, spec, newRecorder())
	if err := syscall.Kill(worker.PythonPID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, wire.MaxFrameBytes-1024)
	for range 2 * backlogBytes / len(body) {
		err := worker.Peer().Notify(&wire.Message{Method: "echo"}, body)
		if errors.Is(err, ErrNotReading) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("everything was taken")
}

func TestRequestsArriveWhileOutputFloods(t *testing.T) {
	r := newRecorder()
	worker := launch(t, testSpec(t), r)
	const writes, perWrite = 200, 1000
	flood := make(chan error, 1)
	if _, err := worker.Peer().Start(&wire.Message{Method: "flood", Params: wire.Params(anything{
		"text": "a line of the flood\n", "per_write": perWrite, "writes": writes,
	})}, nil, func(_ *wire.Message, _ []byte, err error) { flood <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-flood; err != nil {
		t.Fatal(err)
	}
	ask[anything](t, worker, "print", anything{"text": "after the flood\n"})
	seen := func() (lines, dropped int64, last string) {
		for _, line := range r.lines {
			lines++
			dropped += line.DroppedLines
			last = line.Text
		}
		return lines, dropped, last
	}
	r.wait(t, "the line after the flood", func() bool {
		_, _, last := seen()
		return last == "after the flood"
	})
	if lines, dropped, _ := seen(); lines+dropped != writes*perWrite+1 {
		t.Errorf("%d lines arrived and %d were dropped of %d", lines, dropped, writes*perWrite+1)
	}
}

// blockingSink never returns until it is told to.
type blockingSink struct{ release chan struct{} }

func (s blockingSink) Log(Line) { <-s.release }

func TestASinkThatBlocksHoldsUpNobody(t *testing.T) {
	spec := testSpec(t)
	sink := blockingSink{make(chan struct{})}
	spec.Log = sink
	worker, err := Launch(testContext(t), spec, newRecorder())
	if err != nil {
		t.Fatal(err)
	}
	ask[anything](t, worker, "flood", anything{"text": strings.Repeat("x", 99) + "\n", "per_write": 1000, "writes": 200})
	ask[anything](t, worker, "echo", nil)
	close(sink.release)
	if err := worker.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestALauncherAnswersNobodyWithoutItsKey(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	record := worker.Record()
	for name, options := range map[string][]grpc.DialOption{"no key": nil, "a wrong key": dialOptions(newKey())} {
		conn, err := grpc.NewClient("passthrough:launcher", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
			dialerOption(func() (string, string) {
				return record.Network, hostAddress(record.Folder, record.Network, record.Address)
			}))...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = launcherpb.NewLauncherClient(conn).Kill(testContext(t), &launcherpb.KillRequest{})
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: a kill ended with %v", name, err)
		}
		_, err = grpc_health_v1.NewHealthClient(conn).Check(testContext(t), &grpc_health_v1.HealthCheckRequest{})
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: go-plugin's health check ended with %v", name, err)
		}
		stream, err := launcherpb.NewLauncherClient(conn).Traffic(testContext(t))
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: a stream ended with %v", name, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	ask[anything](t, worker, "echo", nil)
}

func TestALauncherAskedToEndTakesItsWorkerAlong(t *testing.T) {
	worker := launch(t, testSpec(t), newRecorder())
	if err := syscall.Kill(worker.Record().Launcher.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	exit := waitDone(t, worker)
	if exit.Code == nil || !strings.Contains(exit.Reason, "SIGTERM") {
		t.Errorf("exit %v", exit)
	}
	expectNothingLeft(t, worker.Record())
}

func TestALauncherStartsThoughItsBinaryIsDeleted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(temporaryFolder(t), "supervisor")
	if err := os.WriteFile(copied, content, 0o700); err != nil {
		t.Fatal(err)
	}
	supervisor, record := startTestSupervisorFrom(t, copied, testSpec(t), func() {
		if err := os.Remove(copied); err != nil {
			t.Fatal(err)
		}
	})
	supervisor.leave(t)
	if err := attach(t, record, newRecorder()).Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, record)
}

func TestALauncherOutlivesItsReader(t *testing.T) {
	// The pipes of its standard output and error have no reader any more, and its session has no terminal.
	spec := testSpec(t)
	supervisor, record := startTestSupervisor(t, spec)
	supervisor.kill()
	for _, signal := range []syscall.Signal{syscall.SIGPIPE, syscall.SIGINT} {
		if err := syscall.Kill(record.Launcher.PID, signal); err != nil {
			t.Fatal(err)
		}
	}
	ask[anything](t, attach(t, record, newRecorder()), "echo", nil)
	for descriptor := 1; descriptor <= 2; descriptor++ {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", record.Launcher.PID, descriptor))
		if err != nil || target != filepath.Join(record.Folder, launcherLogName) {
			t.Errorf("descriptor %d is %s, %v", descriptor, target, err)
		}
	}
}

func TestALauncherHoldsNothingOfItsParents(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	// As a parent would that starts a supervisor and waits for the end of its output.
	duplicate, err := syscall.Dup(int(writer.Fd())) // not marked close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	launch(t, testSpec(t), newRecorder())
	if err := errors.Join(writer.Close(), syscall.Close(duplicate)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, reader)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the pipe is still open somewhere")
		_ = reader.Close()
		<-ended
	}
}

func TestWhoeverIsNotALauncherIsTold(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(self, "worker").CombinedOutput()
	if err == nil || !bytes.Contains(output, []byte("not meant to be executed directly")) {
		t.Errorf("%s, %v", output, err)
	}
}

func frameOf(t testing.TB, header string, body int) []byte {
	t.Helper()
	frame, err := wire.AppendFrame(nil, wire.Frame{Header: []byte(header), Body: make([]byte, body)})
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestUpwardFramesAreCutBetweenFrames(t *testing.T) {
	var stream []byte
	for number := range 300 {
		stream = append(stream, frameOf(t, fmt.Sprintf(`{"n":%d}`, number), number*37)...)
	}
	stream = append(stream, frameOf(t, `{"large":1}`, 900<<10)...)
	stream = append(stream, frameOf(t, `{"last":1}`, 0)...)
	for name, reader := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "in halves": iotest.HalfReader(bytes.NewReader(stream)),
		"with data and end at once": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			var up upwardFrames
			var got []byte
			for {
				frames, err := up.next(reader)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if whole, _, err := wholeFrames(frames); err != nil || whole != len(frames) {
					t.Fatalf("%d bytes, %d of them whole frames, %v", len(frames), whole, err)
				}
				got = append(got, frames...)
			}
			if !bytes.Equal(got, stream) {
				t.Error("the bytes are not the same")
			}
			if len(up.buffer) > upwardBufferBytes {
				t.Errorf("it keeps a buffer of %d bytes", len(up.buffer))
			}
		})
	}
}

// FuzzUpwardFrames holds what the launcher cuts and what the supervisor makes of it against plain reading.
func FuzzUpwardFrames(f *testing.F) {
	f.Add(append(frameOf(f, `{"a":1}`, 10), frameOf(f, `{"b":1}`, 0)...), 3)
	f.Add(frameOf(f, `{"a":1}`, 10)[:12], 1)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1}, 8)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, 2)
	f.Fuzz(func(t *testing.T, data []byte, chunk int) {
		var want []wire.Frame
		plain := bytes.NewReader(data)
		for {
			frame, err := wire.ReadFrame(plain)
			if err != nil {
				break
			}
			want = append(want, frame)
		}
		var up upwardFrames
		var got []wire.Frame
		chunked := &chunkReader{data, max(1, chunk&0xfff)}
		for {
			frames, err := up.next(chunked)
			if err != nil {
				break
			}
			connection := trafficConn{rest: bytes.Clone(frames)}
			for len(connection.rest) > 0 {
				frame, err := connection.cut()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, frame)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d frames of %d", len(got), len(want))
		}
		for index, frame := range got {
			if !bytes.Equal(frame.Header, want[index].Header) || !bytes.Equal(frame.Body, want[index].Body) {
				t.Fatalf("frame %d differs", index)
			}
		}
	})
}

// chunkReader returns so many bytes at once.
type chunkReader struct {
	data []byte
	size int
}

func (r *chunkReader) Read(buffer []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	count := copy(buffer, r.data[:min(r.size, len(r.data))])
	r.data = r.data[count:]
	return count, nil
}

func TestFramesThatCouldNotBeSentAreSentNext(t *testing.T) {
	stream := append(frameOf(t, `{"a":1}`, 10), frameOf(t, `{"b":1}`, 10)...)
	var up upwardFrames
	reader := bytes.NewReader(stream)
	frames, err := up.next(reader)
	if err != nil || !bytes.Equal(frames, stream) {
		t.Fatal(frames, err)
	}
	up.keep(frames)
	again, err := up.next(reader)
	if err != nil || !bytes.Equal(again, stream) {
		t.Errorf("%q, %v", again, err)
	}
}

func TestTornAndOversizedUpwardFramesAreErrors(t *testing.T) {
	whole := frameOf(t, `{"a":1}`, 10)
	var up upwardFrames
	if _, err := up.next(bytes.NewReader(whole[:12])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	for _, size := range [][2]uint32{{0, 5}, {wire.MaxHeaderBytes + 1, 0}, {1, wire.MaxFrameBytes}, {1 << 31, 1 << 31}} {
		prefix := binary.BigEndian.AppendUint32(nil, size[0])
		prefix = binary.BigEndian.AppendUint32(prefix, size[1])
		var up upwardFrames
		if _, err := up.next(bytes.NewReader(prefix)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("lengths %v: %v", size, err)
		}
		var connection trafficConn
		connection.rest = prefix
		if _, err := connection.Receive(); err == nil {
			t.Errorf("lengths %v were received", size)
		}
	}
}

func TestAnOrphanClockRunsOnlyWithoutAStream(t *testing.T) {
	clock := newOrphanClock(time.Hour)
	clock.setLimit(20 * time.Millisecond)
	if !clock.attach() || !clock.attached() {
		t.Fatal("it was too late")
	}
	if !clock.attach() { // a second stream takes over before the first one has gone
		t.Fatal("it was too late")
	}
	clock.detach()
	select {
	case <-clock.fired:
		t.Error("it fired though a stream is there")
	case <-time.After(60 * time.Millisecond): // the proof is that nothing happens
	}
	clock.detach()
	<-clock.fired
	if clock.attach() {
		t.Error("a stream may begin after the clock has fired")
	}
	stopped := newOrphanClock(10 * time.Millisecond)
	stopped.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	select {
	case <-stopped.fired:
		t.Error("a stopped clock fired")
	case <-ctx.Done():
	}
}
