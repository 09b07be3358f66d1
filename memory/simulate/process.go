package simulate

import (
	"math"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// process is a host or a worker: a ComfyUI with its own list of models.
type process struct {
	party    memory.Party
	session  *session
	device   *device
	alive    bool
	started  bool
	onCard   memory.Bytes // all of it: context, weights, activations
	context  bool
	models   []*loaded // as in current_loaded_models: the newest first
	calls    int       // that run
	waiting  *load     // for an answer
	released bool
	silent   bool
	lastUse  time.Duration
	idle     time.Duration // since when

	pinned   memory.Bytes
	pinCap   float64 // MAX_PINNED_MEMORY in force
	sequence uint64
	reported memory.Bytes // held, in the last report
	onStart  []func()     // what waits for the process to be up
	boundary []func()     // what to do when the running call ends
	running  []*load      // calls that have begun and not ended
}

// loaded is one model in a process.
type loaded struct {
	model    Model
	resident memory.Bytes
	inRAM    bool
	pinned   memory.Bytes
	inUse    int
}

func (p *process) busy() bool { return p.calls > 0 }

// find is the process's entry for a model, made at its first use.
func (p *process) find(model Model) *loaded {
	for _, m := range p.models {
		if m.model.Name == model.Name {
			return m
		}
	}
	m := &loaded{model: model}
	p.models = append([]*loaded{m}, p.models...)
	return m
}

// held is what the process reports: its weights and activations.
func (p *process) held() memory.Bytes {
	if !p.context {
		return p.onCard
	}
	return p.onCard - contextBytes
}

// ownReading is what the process itself reads as free.
func (p *process) ownReading() memory.Bytes {
	if p.device.processLocal {
		return p.device.total - p.device.driver - p.onCard
	}
	return max(0, p.device.free())
}

// others are the models that are not in use, as upstream's free_memory sees them.
func (p *process) others(keep *loaded, names []string) (list []memory.LoadedModel, entries []*loaded) {
	for _, m := range p.models {
		if m == keep || m.inUse > 0 || slices.Contains(names, m.model.Name) {
			continue
		}
		list = append(list, memory.LoadedModel{Name: m.model.Name, Size: m.model.Size, Loaded: m.resident, References: 2, Dynamic: m.model.Paged})
		entries = append(entries, m)
	}
	return list, entries
}

// unload takes bytes of a model off the card.
func (p *process) unload(m *loaded, bytes memory.Bytes) memory.Bytes {
	bytes = min(bytes, m.resident)
	m.resident -= bytes
	p.device.give(p, bytes)
	return bytes
}

// freeMemory is upstream's free_memory in this process. It returns what left the card.
func (p *process) freeMemory(required float64, keep *loaded, names []string, options memory.FreeMemoryOptions) (freed memory.Bytes) {
	list, entries := p.others(keep, names)
	for _, step := range memory.PlanFreeMemory(required, p.ownReading(), list, options) {
		freed += p.unload(entries[step.Index], step.Bytes)
	}
	return freed
}

// release takes a number of bytes from models that are not in use and not kept, in upstream's own order.
func (p *process) release(bytes memory.Bytes, keep *loaded, names []string) (freed memory.Bytes) {
	return p.freeMemory(float64(p.ownReading()+bytes), keep, names, memory.FreeMemoryOptions{})
}

// releaseAll is the full ladder: every model that is not in use, and the pins.
func (p *process) releaseAll() (freed memory.Bytes) {
	for _, m := range p.models {
		if m.inUse == 0 {
			freed += p.unload(m, m.resident)
		}
	}
	p.unpin(math.MaxInt64, true)
	return freed
}

// unpin gives pinned bytes back: of idle models, and of those in use only when all is asked.
func (p *process) unpin(bytes memory.Bytes, inUse bool) (freed memory.Bytes) {
	for _, m := range slices.Backward(p.models) {
		if m.inUse > 0 && !inUse || bytes <= 0 {
			continue
		}
		step := min(m.pinned, bytes)
		m.pinned -= step
		p.pinned -= step
		bytes -= step
		freed += step
	}
	return freed
}

// largestModel is the largest that the process has set up.
func (p *process) largestModel() (largest memory.Bytes) {
	for _, m := range p.models {
		largest = max(largest, m.model.Size)
	}
	return largest
}

// load is one model on its way to the card, and the computation it is for.
type load struct {
	id       string
	process  *process
	node     Node
	entry    *loaded
	asked    time.Duration
	let      bool // was let go on
	forced   bool
	planned  memory.Bytes // still to be taken for weights
	actual   memory.Bytes // what computing will take
	working  bool         // has taken it
	finished func(failed bool)
}

// toCome is what the load has not taken yet of what it will.
func (l *load) toCome() memory.Bytes {
	if l.working {
		return l.planned
	}
	return l.planned + l.actual
}

// request is the load as upstream's sum takes it.
func (l *load) request(reserve float64) memory.Load {
	return memory.Load{Weights: l.node.Model.Size - l.entry.resident, Activation: float64(l.node.Activation), Minimum: -1, Reserve: reserve}
}
