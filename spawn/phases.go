package spawn

import (
	"sync"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
)

// maxPhases bounds the phases kept for a supervisor that is not there.
const maxPhases = 32

// phaseBoard keeps a launcher's phases until a Traffic stream takes them.
type phaseBoard struct {
	wake chan struct{}

	mu     sync.Mutex
	phases []*launcherpb.Phase
}

func newPhaseBoard() *phaseBoard { return &phaseBoard{wake: make(chan struct{}, 1)} }

func (b *phaseBoard) report(phase, detail string) {
	b.mu.Lock()
	if len(b.phases) == maxPhases {
		b.phases = b.phases[1:]
	}
	b.phases = append(b.phases, &launcherpb.Phase{Phase: phase, Detail: detail, TimeNs: time.Now().UnixNano()})
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *phaseBoard) take() []*launcherpb.Phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	phases := b.phases
	b.phases = nil
	return phases
}
