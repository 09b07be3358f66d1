package memory

import (
	"slices"
	"time"
)

// rhythm guesses when a session will use what it has used before. Workflows repeat, prompt after prompt, and what ran last
// is mostly what comes last again: evicting the longest unused first would throw out exactly what comes next. So the uses
// of every workflow's last run are remembered with their times, and read as the plan of the run that is under way.
type rhythm struct {
	plans   map[string]*plan // by workflow
	current *plan
	running bool
	started time.Time     // of the prompt that runs, or ran last
	period  time.Duration // from one prompt's start to the next one's, smoothed
	at      int           // uses of the plan that are behind us
	seen    []use         // in this run
}

// plan is the uses of one run of a workflow, in their order.
type plan struct {
	workflow string
	uses     []use
	last     time.Time
}

// use is one load, by what it loaded and when in its prompt.
type use struct {
	what   used
	offset time.Duration
}

// used names weights across generations of a worker: the environment and the model's name. Without names it is the whole
// process.
type used struct{ environment, model string }

const (
	plansKept = 64   // workflows of a session that are remembered
	usesKept  = 1024 // uses of one run
)

// prompt notes the start of a prompt of a workflow, or with an empty name the end of the one that runs.
func (r *rhythm) prompt(now time.Time, workflow string) {
	if r.running && r.current != nil && len(r.seen) > 0 {
		r.current.uses, r.current.last = r.seen, now
		r.seen = nil
	}
	r.running = workflow != ""
	if !r.running {
		return
	}
	if gap := elapsed(r.started, now); !r.started.IsZero() {
		if r.period == 0 {
			r.period = gap
		} else {
			r.period += (gap - r.period) / 4
		}
	}
	r.started, r.at, r.seen = now, 0, nil
	if r.plans == nil {
		r.plans = make(map[string]*plan)
	}
	r.current = r.plans[workflow]
	if r.current == nil {
		r.current = &plan{workflow: workflow, last: now}
		r.plans[workflow] = r.current
		r.forget()
	}
}

// forget drops the workflow that ran longest ago when there are too many.
func (r *rhythm) forget() {
	if len(r.plans) <= plansKept {
		return
	}
	var oldest *plan
	for _, candidate := range r.plans {
		if candidate != r.current && (oldest == nil || candidate.last.Before(oldest.last) ||
			candidate.last.Equal(oldest.last) && candidate.workflow < oldest.workflow) {
			oldest = candidate
		}
	}
	delete(r.plans, oldest.workflow)
}

// use notes a load.
func (r *rhythm) use(now time.Time, what used) {
	if !r.running || len(r.seen) >= usesKept {
		return
	}
	r.seen = append(r.seen, use{what, elapsed(r.started, now)})
	if at := r.find(what, r.at); at >= 0 {
		r.at = at + 1
	}
}

// find is the place of a use in the plan, from a place on; -1: it is not there.
func (r *rhythm) find(what used, from int) int {
	if r.current == nil || from > len(r.current.uses) {
		return -1
	}
	at := slices.IndexFunc(r.current.uses[from:], func(u use) bool { return u.what == what })
	if at < 0 {
		return -1
	}
	return from + at
}

// next guesses when something is used next; false: the plan does not know it.
func (r *rhythm) next(now time.Time, what used) (time.Time, bool) {
	start := r.started
	if r.running {
		if at := r.find(what, r.at); at >= 0 {
			return later(now, start.Add(r.current.uses[at].offset)), true
		}
	}
	at := r.find(what, 0)
	if at < 0 {
		return time.Time{}, false
	}
	return later(now, start.Add(r.period)).Add(r.current.uses[at].offset), true
}

// horizon is how far ahead the plan looks: what it does not know is used after that, if ever.
func (r *rhythm) horizon(now time.Time) time.Time {
	return later(now, r.started).Add(2 * r.period)
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
