package simulate

import "github.com/comfy-supervisor/comfy-supervisor/memory"

// independent is N ComfyUIs: each asks itself, and nobody gives anything back for another's sake.
type independent struct{ world *world }

func (i *independent) start()                 {}
func (i *independent) joined(*process)        {}
func (i *independent) ready(*process)         {}
func (i *independent) gone(*process)          {}
func (i *independent) began(*process)         {}
func (i *independent) changed(*process)       {}
func (i *independent) loaded(*load)           {}
func (i *independent) ended(*load)            {}
func (i *independent) promptChanged(*session) {}

func (i *independent) ask(l *load) { i.world.proceed(l, baseReserve(l.process.device), 0, false) }

func (i *independent) pinCap(p *process) float64 {
	return ownCeiling(&i.world.scenario, p.device)
}

// baseReserve is EXTRA_RESERVED_VRAM as a process resolves it for itself.
func baseReserve(d *device) float64 { return memory.DefaultReserve(d.processLocal, d.total) }

// ownCeiling is MAX_PINNED_MEMORY as a ComfyUI 0.30 resolves it for itself.
func ownCeiling(scenario *Scenario, d *device) float64 {
	return memory.PinCeiling(memory.Version{Minor: 30}, memory.PinSystem{Windows: d.processLocal, Pinning: scenario.Machine.RAM > 0, RAM: scenario.Machine.RAM})
}
