package budget

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/sys/atomicwriter"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// saveEvery is how often new estimates are written at most; the end of the supervisor writes them as well.
const saveEvery = time.Minute

// estimatesLost is the event of estimates that could not be written.
const estimatesLost = "memory.estimates_lost"

// estimates remembers what computing took.
type estimates struct {
	known   memory.Estimates
	changed bool
	saving  bool
	saved   time.Time
}

// estimateKey says what an ask's computation is remembered as.
func (k *Keeper) estimateKey(a *ask) memory.EstimateKey {
	return memory.EstimateKey{Node: a.node, Device: k.cards.kind(a.device), Attention: a.member.census.Attention.Name}
}

func (e *estimates) observe(now time.Time, key memory.EstimateKey, peak memory.Bytes) {
	if peak > 0 {
		e.known.Observe(now, key, peak)
		e.changed = true
	}
}

func (e *estimates) due(now time.Time) bool {
	return e.changed && !e.saving && now.Sub(e.saved) >= saveEvery
}

// load reads what an earlier supervisor has measured. A file that cannot be read is put aside: it is advice, no more.
func (e *estimates) load(file string, complain func(kind string, err error)) {
	if file == "" {
		return
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(text, &e.known)
	}
	if err != nil {
		complain("memory.estimates_unreadable", fmt.Errorf("reading %s: %w; beginning anew", file, err))
	}
}

// saveEstimates writes what is new beside the owner: a slow disk keeps no load waiting. One that fails is tried again.
func (k *Keeper) saveEstimates() {
	e := &k.estimate
	text, err := json.Marshal(&e.known)
	if err != nil {
		k.complain(estimatesLost, err)
		return
	}
	e.changed, e.saving = false, true
	k.work.Go(func() {
		err := writeEstimates(k.config.File, text)
		if err != nil {
			k.complain(estimatesLost, err)
		}
		k.post(func() {
			e.saving = false
			if err != nil {
				e.changed = true
			} else {
				e.saved = time.Now()
			}
		})
	})
}

// keepEstimates writes what is new, or whose writing was not seen to end, when all else is done.
func (k *Keeper) keepEstimates() {
	if e := &k.estimate; k.config.File == "" || !e.changed && !e.saving {
		return
	}
	text, err := json.Marshal(&k.estimate.known)
	if err == nil {
		err = writeEstimates(k.config.File, text)
	}
	if err != nil {
		k.complain(estimatesLost, err)
	}
}

// writeEstimates replaces the file: a crash leaves the old ones or the new ones.
func writeEstimates(file string, text []byte) error {
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = atomicwriter.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing activation estimates to %s: %w", file, err)
	}
	return nil
}

// compareAttention shows when a worker estimates by another branch of upstream's formula than its host: the same shapes
// then come out 7.5 times apart at two bytes an element. What was measured is kept by backend and never mixed.
func (k *Keeper) compareAttention(m *member) {
	if m.Party.IsHost() {
		for _, worker := range k.sessionWorkers(m.Party.Session) {
			if worker.seen {
				k.compareAttention(worker)
			}
		}
		return
	}
	host := k.members[memory.Host(m.Party.Session)]
	if host == nil || !host.seen || host.census.Attention.Name == "" || m.census.Attention.Name == "" {
		return
	}
	theirs, ours := host.census.Attention, m.census.Attention
	if theirs.Compact == ours.Compact {
		return
	}
	factor, _ := memory.ConvertEstimate(1, theirs, ours, 2)
	m.attention = fmt.Sprintf("attention %s here, %s in the host: activation estimates are %.2f times the host's", ours.Name, theirs.Name, factor)
	k.config.Note(m.Party, "memory: "+m.attention)
	k.event("memory.attention_differs", m.Party, "", m.attention, memory.Terms{
		memory.Fact("host", theirs.Name), memory.Fact("worker", ours.Name), memory.Fact("factor at two bytes an element", fmt.Sprintf("%.3f", factor))})
}
