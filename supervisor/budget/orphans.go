package budget

import (
	"encoding/json"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// orphan is an adopted worker that has not said that it is idle: it may compute a call whose answer nobody waits for any
// more. No call of ours tells of that one's end, so the worker is asked, whenever it reports something and from time to
// time, and counts as busy until then.
type orphan struct {
	heard  bool      // it has answered the question for its leases, which comes first: they end where it is idle
	asking bool      // a question is on its way
	stale  bool      // something has happened since it went
	again  time.Time // of the next one; zero: something else brings it
	said   bool      // that it computes was made an event
}

// laneState answers api.MethodPing.
type laneState struct {
	Busy    bool `json:"lane_busy"`
	Depth   int  `json:"depth"`
	Current *struct {
		Node    string  `json:"node"`
		Seconds float64 `json:"seconds"`
	} `json:"current"`
}

// isOrphan tells whether a worker may compute what an earlier supervisor had sent.
func (k *Keeper) isOrphan(m *member) bool { return k.takeover.orphans[m] != nil }

// askLane asks an adopted worker whether it computes, one question at a time. Of others it asks nothing.
func (k *Keeper) askLane(m *member) {
	o := k.takeover.orphans[m]
	switch {
	case o == nil || !o.heard:
		return
	case o.asking: // the answer may be older than what has happened now
		o.stale = true
		return
	}
	o.asking, o.stale, o.again = true, false, time.Time{}
	m.Line.Ask(api.MethodPing, struct{}{}, func(result json.RawMessage, err error) {
		var said laneState
		if err == nil {
			err = json.Unmarshal(result, &said)
		}
		k.post(func() {
			if o.asking = false; k.takeover.orphans[m] == o {
				k.takeLane(m, o, said, err)
			}
		})
	})
}

// takeLane takes the answer over: a worker that is idle is from now on where the supervisor says that it is.
func (k *Keeper) takeLane(m *member, o *orphan, said laneState, err error) {
	now := time.Now()
	if err != nil && !isUnknown(err) || said.Busy {
		if m.told == memory.Busy {
			return // with calls of ours, whose end is told
		}
		if o.stale {
			k.askLane(m)
			return
		}
		if said.Busy && !o.said {
			o.said = true
			terms := memory.Terms{memory.Count("calls", said.Depth)}
			if said.Current != nil {
				terms = append(terms, memory.Fact("node", said.Current.Node), memory.Span("for", time.Duration(said.Current.Seconds*float64(time.Second))))
			}
			k.event("memory.orphan_computes", m.Party, "", "a call of an earlier supervisor", terms)
		}
		o.again = now.Add(k.config.OrphanPause)
		k.setTakeoverTimer()
		return
	}
	delete(k.takeover.orphans, m)
	if o.said {
		k.event("memory.orphan_ended", m.Party, "", "a call of an earlier supervisor", nil)
	}
	k.phase(m.Party, m.told, now)
}
