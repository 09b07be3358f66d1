//go:build (linux && cgo) || windows

package probe

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// What a driver must have, each with the spellings that will do, and what may be missing.
var (
	requiredFunctions = [][]string{
		{"nvmlInit_v2", "nvmlInit"}, {"nvmlShutdown"}, {"nvmlErrorString"},
		{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
		{"nvmlDeviceGetUUID"}, {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"}, {"nvmlDeviceGetMemoryInfo"},
	}
	functionName        = []string{"nvmlDeviceGetName"}
	functionReserved    = []string{"nvmlDeviceGetMemoryInfo_v2"}
	functionProcesses   = []string{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"}
	functionMIG         = []string{"nvmlDeviceGetMigMode"}
	functionMIGCount    = []string{"nvmlDeviceGetMaxMigDeviceCount"}
	functionMIGInstance = []string{"nvmlDeviceGetMigDeviceHandleByIndex"}
)

// missingFunctions are the required functions that a library lacks; has looks one up.
func missingFunctions(has func(name string) bool) error {
	var missing []error
	for _, spellings := range requiredFunctions {
		found := false
		for _, name := range spellings {
			found = found || has(name)
		}
		if !found {
			missing = append(missing, fmt.Errorf("the library lacks %s: its driver is older than any that is supported", spellings[0]))
		}
	}
	return errors.Join(missing...)
}

// anyOf tells whether one of several spellings is there.
func anyOf(has func(string) bool, spellings []string) bool {
	for _, name := range spellings {
		if has(name) {
			return true
		}
	}
	return false
}

// errNotThere: the library or the card does not offer this.
var errNotThere = errors.New("not supported")

// notAvailable is NVML's figure for what it cannot know (WDDM: what a process holds).
const notAvailable = math.MaxUint64

// calls is NVML as one platform reaches it. Handles are the platform's own.
type calls[handle any] interface {
	count() (int, error)
	card(index int) (handle, error)
	identity(handle) (uuid, pci, name string, err error)
	memory(handle) (total, free, reserved uint64, err error)
	// processes returns errNotThere where the driver does not list them.
	processes(handle) ([]ProcessBytes, error)
	// instances returns errNotThere on a card without MIG, or with MIG off.
	instances(handle) ([]handle, error)
	close() error
}

// nvmlSource reads cards through NVML. Identities are read once, and again after an error.
type nvmlSource[handle any] struct {
	calls   calls[handle]
	ownPIDs bool
	known   []knownCard[handle]
}

type knownCard[handle any] struct {
	handle handle
	card   Card
}

func (s *nvmlSource[handle]) close() error { return s.calls.close() }

func (s *nvmlSource[handle]) read() ([]Card, error) {
	if s.known == nil {
		if err := s.enumerate(); err != nil {
			return nil, err
		}
	}
	cards := make([]Card, len(s.known))
	failed := false
	for i := range s.known {
		cards[i] = s.known[i].card
		if cards[i].Err == nil && !cards[i].Partitioned {
			s.figures(s.known[i].handle, &cards[i])
		}
		failed = failed || cards[i].Err != nil
	}
	if failed {
		s.known = nil // a card may have come back, or gone for good
	}
	return cards, nil
}

func (s *nvmlSource[handle]) enumerate() error {
	count, err := s.calls.count()
	if err != nil {
		return fmt.Errorf("counting the cards: %w", err)
	}
	known := make([]knownCard[handle], 0, count)
	for index := range count {
		device, err := s.calls.card(index)
		if err != nil {
			known = append(known, knownCard[handle]{card: Card{Index: index, Err: fmt.Errorf("card %d: %w", index, err)}})
			continue
		}
		whole := knownCard[handle]{device, s.identify(device, index, "")}
		instances, err := s.calls.instances(device)
		if err != nil && !errors.Is(err, errNotThere) {
			whole.card.Err = fmt.Errorf("card %d: listing its MIG instances: %w", index, err)
		}
		whole.card.Partitioned = err == nil
		known = append(known, whole)
		for _, instance := range instances {
			known = append(known, knownCard[handle]{instance, s.identify(instance, index, whole.card.UUID)})
		}
	}
	s.known = known
	return nil
}

func (s *nvmlSource[handle]) identify(device handle, index int, parent string) Card {
	card := Card{Index: index, Parent: parent}
	uuid, pci, name, err := s.calls.identity(device)
	if err == nil {
		card.UUID, card.Name = uuid, name
		card.PCI, err = NormalizePCI(pci)
	}
	if err != nil {
		card.Err = fmt.Errorf("card %d: reading its identity: %w", index, err)
	}
	return card
}

// figures reads what changes. A process may load or free between two calls: the least that was free before and after the
// processes were listed is never more than what belongs to that list, so that nothing which a process has taken of what
// was promised to it counts as free as well.
func (s *nvmlSource[handle]) figures(device handle, card *Card) {
	card.At = time.Now()
	if !s.memory(device, card) {
		return
	}
	before := card.Free
	processes, err := s.calls.processes(device)
	if err != nil {
		return // without them a card is still read; what each process holds is then its own word
	}
	if !s.memory(device, card) {
		return
	}
	card.Free = min(card.Free, before)
	card.Attributed = s.ownPIDs
	for _, process := range processes {
		if process.Bytes < 0 {
			card.Attributed = false
			continue
		}
		card.Processes = append(card.Processes, process)
	}
}

// memory reads what of a card is free; false, with the card's error, when it can not be read.
func (s *nvmlSource[handle]) memory(device handle, card *Card) bool {
	total, free, reserved, err := s.calls.memory(device)
	if err != nil {
		card.Err = fmt.Errorf("card %d (%s): reading its memory: %w", card.Index, card.Device(), err)
		return false
	}
	card.Total, card.Free, card.Reserved = toBytes(total), toBytes(free), toBytes(reserved)
	return true
}

// toBytes keeps absurd figures in range.
func toBytes(value uint64) memory.Bytes {
	return memory.Bytes(min(value, math.MaxInt64))
}

// processBytes is one entry of the driver's list; what it cannot know is below zero.
func processBytes(pid uint32, used uint64) ProcessBytes {
	if used == notAvailable {
		return ProcessBytes{int(pid), -1}
	}
	return ProcessBytes{int(pid), toBytes(used)}
}
