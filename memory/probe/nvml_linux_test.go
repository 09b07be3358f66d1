//go:build linux && cgo

package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/fakecard"
	"github.com/comfy-supervisor/comfy-supervisor/testdata/processtest"
	"go.uber.org/goleak"
)

// go-nvml binds a process to the first library it calls, so every test reads its cards in a process of its own: this test
// binary again, told so by this variable.
const readerVariable = "PROBE_TEST_READER"

func TestMain(m *testing.M) {
	if library := os.Getenv(readerVariable); library != "" {
		os.Exit(reader(library))
	}
	folder, err := os.MkdirTemp("", "probe-test-")
	if err == nil {
		complete, err = fakecard.Build(folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(folder)
		os.Exit(code)
	}))
}

// complete is the fake with every function.
var complete *fakecard.Library

// answer is what the reader prints for each question.
type answer struct {
	Cards   []Card
	Errors  []string
	Error   string
	Hanging bool
	TookMS  int64
}

// reader opens the cards and reads them at every line of its input.
func reader(library string) int {
	print := func(cards []Card, err error, took time.Duration) {
		reply := answer{Cards: cards, TookMS: took.Milliseconds()}
		for _, card := range cards {
			if card.Err != nil {
				reply.Errors = append(reply.Errors, card.Err.Error())
			}
		}
		var hang *HangError
		if err != nil {
			reply.Error, reply.Hanging = err.Error(), errors.As(err, &hang)
		}
		_ = json.NewEncoder(os.Stdout).Encode(reply)
	}
	cards, err := Open(context.Background(), Options{Library: library, Deadline: 300 * time.Millisecond, OwnPIDs: true})
	print(nil, err, 0)
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		start := time.Now()
		list, err := cards.Read(context.Background())
		print(list, err, time.Since(start))
	}
	if err := cards.Close(); err != nil {
		print(nil, err, 0)
	}
	return 0
}

// readerProcess is a reader as its test sees it.
type readerProcess struct {
	*testing.T
	input  io.WriteCloser
	output *json.Decoder
}

func startReader(t *testing.T, library string, card *fakecard.Card) (*readerProcess, answer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), readerVariable+"="+library, card.Variable(), "GORACE=atexit_sleep_ms=0")
	input, output := processtest.Start(t, command)
	t.Cleanup(func() {
		_ = input.Close()
		_, _ = io.Copy(io.Discard, output)
		if err := command.Wait(); err != nil {
			t.Errorf("the reader ended badly: %v", err)
		}
	})
	p := &readerProcess{t, input, json.NewDecoder(output)}
	return p, p.next()
}

func (p *readerProcess) next() (reply answer) {
	p.Helper()
	if err := p.output.Decode(&reply); err != nil {
		p.Fatalf("the reader said nothing: %v", err)
	}
	return reply
}

func (p *readerProcess) read() answer {
	p.Helper()
	if _, err := fmt.Fprintln(p.input, "read"); err != nil {
		p.Fatal(err)
	}
	return p.next()
}

func newCard(t *testing.T, specs ...fakecard.Spec) (*fakecard.Library, *fakecard.Card) {
	t.Helper()
	card, err := complete.Create(filepath.Join(t.TempDir(), "card"), specs...)
	if err != nil {
		t.Fatal(err)
	}
	return complete, card
}

func hold(t *testing.T, card *fakecard.Card) *fakecard.Holder {
	t.Helper()
	holder, err := card.Hold()
	if err != nil {
		t.Fatal(err)
	}
	return holder
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const gib = 1 << 30

var plain = fakecard.Spec{Name: "Fake 24G", Total: 24 * gib, Driver: 454 << 20}

func TestTheCardIsReadWithWhoHoldsItAndADeadProcessesBytesComeBack(t *testing.T) {
	library, card := newCard(t, plain)
	p, opened := startReader(t, library.Path, card)
	if opened.Error != "" {
		t.Fatal(opened.Error)
	}
	one, two := hold(t, card), hold(t, card)
	must(t, one.Take(0, 4*gib))
	must(t, two.Take(0, 6*gib))
	must(t, card.Foreign(0, 2*gib))
	got := p.read().Cards[0]
	if got.Total != 24*memory.GiB || got.Reserved != 454*memory.MiB || got.Free != 12*memory.GiB-454*memory.MiB || !got.Attributed {
		t.Errorf("%+v", got)
	}
	if got.UUID == "" || got.PCI != "0000:01:00.0" || got.Name != "Fake 24G" || got.At.IsZero() {
		t.Errorf("identity %+v", got)
	}
	held := map[int]memory.Bytes{}
	for _, process := range got.Processes {
		held[process.PID] = process.Bytes
	}
	if held[one.PID()] != 4*memory.GiB || held[two.PID()] != 6*memory.GiB || len(held) != 2 {
		t.Errorf("held %v by %d and %d", held, one.PID(), two.PID())
	}
	if err := two.Take(0, 12*gib); !errors.Is(err, fakecard.ErrOutOfMemory) {
		t.Errorf("twelve more of what is left: %v", err)
	}
	must(t, one.Kill())
	if got := p.read().Cards[0]; got.Free != 16*memory.GiB-454*memory.MiB || len(got.Processes) != 1 {
		t.Errorf("after a death: %+v", got)
	}
	must(t, two.Return(0, 6*gib))
	if got := p.read().Cards[0]; got.Free != 22*memory.GiB-454*memory.MiB || len(got.Processes) != 0 {
		t.Errorf("after a return: %+v", got)
	}
	must(t, two.Close())
}

func TestAProcessLocalCardHidesOthersFromAProcessButNotFromTheDriver(t *testing.T) {
	local := plain
	local.ProcessLocal = true
	library, card := newCard(t, local)
	p, _ := startReader(t, library.Path, card)
	one, two := hold(t, card), hold(t, card)
	defer func() { must(t, one.Close()); must(t, two.Close()) }()
	must(t, one.Take(0, 14*gib))
	free, total, err := two.Free(0)
	must(t, err)
	if free != total {
		t.Errorf("the other reads %d of %d free", free, total)
	}
	must(t, two.Take(0, 14*gib)) // nobody is refused; the card is over-admitted
	over, err := two.Overcommitted(0)
	must(t, err)
	if want := uint64(4*gib + 454<<20); over != want {
		t.Errorf("over by %d, want %d", over, want)
	}
	got := p.read().Cards[0]
	if got.Free != 0 || got.Attributed || len(got.Processes) != 0 {
		t.Errorf("%+v: the driver sees a full card, and not what each process holds", got)
	}
}

func TestSeveralCardsAndInstancesAreToldApart(t *testing.T) {
	big := fakecard.Spec{Name: "Fake 80G", Total: 80 * gib}
	part := fakecard.Spec{Name: "Fake 80G MIG 3g.40gb", Total: 40 * gib, InstanceOf: 2}
	library, card := newCard(t, plain, big, part, part)
	p, _ := startReader(t, library.Path, card)
	holder := hold(t, card)
	must(t, holder.Take(3, 8*gib))
	cards := p.read().Cards
	must(t, holder.Close())
	if len(cards) != 4 {
		t.Fatalf("%d cards: %+v", len(cards), cards)
	}
	if !cards[1].Partitioned || cards[2].Parent != cards[1].UUID || cards[3].Parent != cards[1].UUID || cards[0].Partitioned {
		t.Errorf("%+v", cards)
	}
	if cards[2].Free != 40*memory.GiB || cards[3].Free != 32*memory.GiB || !strings.HasPrefix(cards[3].UUID, "MIG-") {
		t.Errorf("instances %+v %+v", cards[2], cards[3])
	}
}

func TestACardThatFallsOffTheBusIsSaidAndComesBack(t *testing.T) {
	library, card := newCard(t, plain, plain)
	p, _ := startReader(t, library.Path, card)
	must(t, card.Lose(1))
	for range 2 {
		got := p.read()
		if got.Error != "" || len(got.Errors) != 1 || !strings.Contains(got.Errors[0], "GPU is lost") || got.Cards[0].Free == 0 {
			t.Errorf("%+v", got)
		}
	}
	must(t, card.Restore(1))
	p.read() // looks again at who is there
	if got := p.read(); len(got.Errors) != 0 || got.Cards[1].Total != 24*memory.GiB {
		t.Errorf("after it came back: %+v", got)
	}
}

func TestADriverThatFailsMidwayIsAnErrorAndReadAgainLater(t *testing.T) {
	library, card := newCard(t, plain)
	p, _ := startReader(t, library.Path, card)
	must(t, card.Fail("nvmlDeviceGetMemoryInfo_v2", 999))
	if got := p.read(); got.Error != "" || len(got.Errors) != 0 {
		t.Errorf("the older function was not used: %+v", got)
	}
	must(t, card.Fail("nvmlDeviceGetComputeRunningProcesses_v3", 999))
	if got := p.read(); len(got.Errors) != 0 || got.Cards[0].Attributed || got.Cards[0].Total == 0 {
		t.Errorf("without a process list a card is still read: %+v", got)
	}
	must(t, card.Fail("nvmlDeviceGetUUID", 999))
	must(t, card.Lose(0))
	p.read()
	must(t, card.Restore(0))
	if got := p.read(); len(got.Errors) != 1 || !strings.Contains(got.Errors[0], "identity") {
		t.Errorf("%+v", got)
	}
	must(t, card.Fail("nvmlDeviceGetCount_v2", 999))
	if got := p.read(); !strings.Contains(got.Error, "counting the cards") {
		t.Errorf("%+v", got)
	}
	must(t, card.Clear())
	if got := p.read(); got.Error != "" || len(got.Errors) != 0 || !got.Cards[0].Attributed {
		t.Errorf("after all is well: %+v", got)
	}
}

func TestADriverThatHangsCostsAReadingAndNothingElse(t *testing.T) {
	library, card := newCard(t, plain)
	p, _ := startReader(t, library.Path, card)
	must(t, card.Hang("nvmlDeviceGetMemoryInfo_v2"))
	first := p.read()
	if !first.Hanging || first.TookMS < 250 || first.TookMS > 5000 {
		t.Errorf("%+v", first)
	}
	if second := p.read(); !second.Hanging || second.TookMS > 100 {
		t.Errorf("a second reading waited again: %+v", second)
	}
	must(t, p.input.Close())
	if closing := p.next(); !closing.Hanging {
		t.Errorf("closing: %+v", closing)
	}
}

func TestADriverThatHangsAtItsStartIsAnError(t *testing.T) {
	library, card := newCard(t, plain)
	must(t, card.Hang("nvmlInit_v2"))
	if _, opened := startReader(t, library.Path, card); !opened.Hanging {
		t.Errorf("%+v", opened)
	}
}

func TestALibraryThatLacksAFunctionIsAnErrorOrDoneWithout(t *testing.T) {
	for _, test := range []struct{ without, want string }{
		{"nvmlDeviceGetMemoryInfo", "lacks nvmlDeviceGetMemoryInfo"},
		{"nvmlInit_v2", "lacks nvmlInit_v2"},
		{"nvmlDeviceGetCount_v2", "lacks nvmlDeviceGetCount_v2"},
		{"nvmlDeviceGetHandleByIndex_v2", "lacks nvmlDeviceGetHandleByIndex_v2"},
		{"nvmlDeviceGetUUID", "lacks nvmlDeviceGetUUID"},
		{"nvmlDeviceGetPciInfo_v3", "lacks nvmlDeviceGetPciInfo_v3"},
		{"nvmlDeviceGetMemoryInfo_v2", ""},
		{"nvmlDeviceGetComputeRunningProcesses_v3", ""},
		{"nvmlDeviceGetMigMode", ""},
	} {
		library, err := fakecard.Build(t.TempDir(), test.without)
		must(t, err)
		card, err := library.Create(filepath.Join(t.TempDir(), "card"), plain)
		must(t, err)
		p, opened := startReader(t, library.Path, card)
		if test.want != "" {
			if !strings.Contains(opened.Error, test.want) {
				t.Errorf("without %s: %+v", test.without, opened)
			}
			continue
		}
		if got := p.read(); got.Error != "" || len(got.Errors) != 0 || got.Cards[0].Total != 24*memory.GiB {
			t.Errorf("without %s: %+v", test.without, got)
		}
	}
}

func TestAMachineWithoutNVMLSaysWhatItLookedFor(t *testing.T) {
	_, err := Open(context.Background(), Options{Library: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")})
	if err == nil || !strings.Contains(err.Error(), "libnvidia-ml.so.1") {
		t.Errorf("%v", err)
	}
}

func TestPythonTakesAndReturnsBytesOfTheSameCard(t *testing.T) {
	library, card := newCard(t, plain)
	p, _ := startReader(t, library.Path, card)
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "fakecard.py"), fakecard.Python, 0o600))
	script := `
import fakecard, sys
card = fakecard.Card(0)
card.take(3 << 30)
print(card.held(), *card.memory(), flush=True)
sys.stdin.readline()
card.give_back(1 << 30)
try:
    card.take(1 << 40)
except fakecard.OutOfMemoryError as error:
    print(error, flush=True)
sys.stdin.readline()
`
	command := exec.Command("python3", "-c", script)
	command.Env = append(os.Environ(), "PYTHONPATH="+folder, "FAKECARD_LIBRARY="+library.Path, card.Variable())
	input, output := processtest.Start(t, command)
	lines := bufio.NewReader(output)
	line, err := lines.ReadString('\n')
	must(t, err)
	room := 24*gib - 454<<20
	if want := fmt.Sprintf("%d %d %d\n", 3*gib, room-3*gib, room); line != want {
		t.Errorf("Python reads %q, want %q", line, want)
	}
	if got := p.read().Cards[0].Processes; len(got) != 1 || got[0] != (ProcessBytes{command.Process.Pid, 3 * memory.GiB}) {
		t.Errorf("the driver sees %+v", got)
	}
	_, err = fmt.Fprintln(input)
	must(t, err)
	line, err = lines.ReadString('\n')
	must(t, err)
	if !strings.Contains(line, "out of memory") {
		t.Errorf("%q", line)
	}
	must(t, command.Process.Kill())
	_ = command.Wait() // it was killed
	if got := p.read().Cards[0]; got.Free != memory.Bytes(room) {
		t.Errorf("after its death %s are free", got.Free)
	}
}
