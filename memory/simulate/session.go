package simulate

import (
	"strconv"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// session is one host, its workers, and the prompts it will run. The prompts are drawn beforehand, so that the oracle can
// look at them and every mode runs the same ones.
type session struct {
	world       *world
	spec        Session
	name        string
	host        *process
	workers     map[string]*process
	order       []string // of the workers' environments, as they first appear
	generations map[string]uint64
	prompts     []prompt
	calls       []futureCall // all calls of all prompts, with when they would come
	at          int          // prompt that runs, or comes next
	running     bool
	done        bool // all prompts have run
	step        int
	left        int // calls of the step that still run
	failed      bool
	began       time.Duration
}

type prompt struct {
	think    time.Duration // before it
	workflow *Workflow
	first    int // of its calls
	tag      string
}

// futureCall is one call and how much of nominal time lies before it.
type futureCall struct {
	node   Node
	offset time.Duration
	prompt int
}

func (w *world) newSession(index int, spec Session) *session {
	s := &session{world: w, spec: spec, name: "s" + strconv.Itoa(index), workers: map[string]*process{}, generations: map[string]uint64{}}
	total := 0
	for i := range spec.Workflows {
		total += max(1, spec.Workflows[i].Weight)
	}
	var workflow *Workflow
	streak := 0
	offset := spec.Start
	for offset < w.scenario.Duration {
		if streak == 0 {
			pick := w.clock.random.IntN(total)
			for i := range spec.Workflows {
				if pick -= max(1, spec.Workflows[i].Weight); pick < 0 {
					workflow = &spec.Workflows[i]
					break
				}
			}
			streak = 1 + w.clock.random.IntN(max(1, 2*spec.Streak-1))
		}
		streak--
		p := prompt{think: w.clock.between(spec.ThinkLow, spec.ThinkHigh), workflow: workflow, first: len(s.calls), tag: workflow.Name}
		offset += p.think
		for _, step := range workflow.Steps {
			var longest time.Duration
			for _, node := range step {
				s.calls = append(s.calls, futureCall{node, offset, len(s.prompts)})
				longest = max(longest, node.Compute+time.Duration(float64(node.Model.Size)/fromRAM*0.2*float64(time.Second)))
				if node.Environment != "" && s.generations[node.Environment] == 0 {
					s.generations[node.Environment] = 1
					s.order = append(s.order, node.Environment)
				}
			}
			offset += longest
		}
		s.prompts = append(s.prompts, p)
	}
	for environment := range s.generations {
		s.generations[environment] = 0
	}
	return s
}

// start brings the host up and plans the first prompt.
func (s *session) start() {
	s.host = s.world.newProcess(s, memory.Host(s.name))
	s.host.started = true
	s.world.policy.joined(s.host)
	s.next()
}

// next plans the next prompt.
func (s *session) next() {
	if s.at >= len(s.prompts) {
		if !s.done {
			s.done = true
			s.world.done++
		}
		return
	}
	host := s.host
	s.world.clock.in(s.prompts[s.at].think, func() {
		if host.alive && s.host == host {
			s.begin()
		}
	})
}

func (s *session) begin() {
	s.running, s.step, s.failed, s.began = true, 0, false, s.world.clock.now
	s.world.clock.note(s.name, "prompt", strconv.Itoa(s.at))
	s.world.policy.promptChanged(s)
	s.beginStep()
}

// beginStep starts the nodes of one step beside each other.
func (s *session) beginStep() {
	steps := s.prompts[s.at].workflow.Steps
	if s.failed || s.step >= len(steps) {
		s.end()
		return
	}
	nodes := steps[s.step]
	s.left = len(nodes)
	host, at, step := s.host, s.at, s.step
	for _, node := range nodes {
		s.call(node, func(failed bool) {
			if s.host != host || s.at != at || s.step != step || !s.running {
				return // of a host that is gone
			}
			s.failed = s.failed || failed
			if s.left--; s.left == 0 {
				s.step++
				s.beginStep()
			}
		})
	}
}

func (s *session) end() {
	r := &s.world.result
	if s.failed {
		r.Failed++
	} else {
		r.Prompts++
		r.times = append(r.times, s.world.clock.now-s.began)
	}
	s.running = false
	s.at++
	s.world.policy.promptChanged(s)
	s.next()
}

// call runs a node in its process, which is started if there is none.
func (s *session) call(node Node, finished func(failed bool)) {
	p := s.host
	if node.Environment != "" {
		p = s.workers[node.Environment]
		if p == nil {
			s.generations[node.Environment]++
			p = s.world.newProcess(s, memory.Party{Session: s.name, Environment: node.Environment, Generation: s.generations[node.Environment]})
			s.workers[node.Environment] = p
			s.world.policy.joined(p)
			s.world.clock.in(processStart, func() { s.started(p) })
		}
	}
	s.whenStarted(p, node, finished)
}

// started notes that a worker's process is up, and lets its calls begin.
func (s *session) started(p *process) {
	waiting := p.onStart
	p.onStart = nil
	if p.alive {
		p.started = true
		s.world.policy.ready(p)
	}
	for _, begin := range waiting {
		begin()
	}
}

// whenStarted begins a call as soon as its process is up.
func (s *session) whenStarted(p *process, node Node, finished func(failed bool)) {
	switch {
	case p.started && p.alive:
		s.world.beginCall(p, node, finished)
	case p.started || !p.alive:
		finished(true)
	default:
		p.onStart = append(p.onStart, func() {
			if p.alive {
				s.world.beginCall(p, node, finished)
			} else {
				finished(true)
			}
		})
	}
}

// needs tells whether the running prompt has a node of this environment.
func (s *session) needs(environment string) bool {
	if !s.running {
		return false
	}
	for _, step := range s.prompts[s.at].workflow.Steps {
		for _, node := range step {
			if node.Environment == environment {
				return true
			}
		}
	}
	return false
}

// nextUse is how far ahead, in nominal time, a model of a process is used again, counted from the running step.
func (s *session) nextUse(environment string, model string) time.Duration {
	const horizon = 2000 // calls
	if s.at >= len(s.prompts) {
		return 1 << 62
	}
	from := s.prompts[s.at].first
	if s.running {
		for _, step := range s.prompts[s.at].workflow.Steps[:min(s.step, len(s.prompts[s.at].workflow.Steps))] {
			from += len(step)
		}
	}
	if from >= len(s.calls) {
		return 1 << 62
	}
	begin := s.calls[from].offset
	for i := from; i < min(len(s.calls), from+horizon); i++ {
		call := &s.calls[i]
		if call.node.Environment == environment && call.node.Model.Name == model {
			return call.offset - begin
		}
	}
	return 1 << 61
}
