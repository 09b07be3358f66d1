package budget

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Prompt takes a moment of a host's prompt and passes it on, as it is, to the workers that it concerns: those whose nodes
// are in it, and those that have something to account for.
func (k *Keeper) Prompt(id string, params json.RawMessage) {
	var said Prompt
	if json.Unmarshal(params, &said) != nil {
		return
	}
	k.post(func() {
		now := time.Now()
		s := k.session(id)
		s.known = true
		s.queued = said.QueuedEnvironments
		concerned := said.Environments
		switch said.State {
		case "begin":
			s.running[said.PromptID] = running{said, params}
			workflow := said.Workflow
			if workflow == "" {
				workflow = "prompt"
			}
			k.books.Prompt(now, id, workflow)
		case "end":
			if began, ok := s.running[said.PromptID]; ok && len(concerned) == 0 {
				concerned = began.Environments
			}
			delete(s.running, said.PromptID)
			if len(s.running) == 0 {
				k.books.Prompt(now, id, "")
			}
		default: // only the queue has changed
		}
		for _, m := range k.sessionWorkers(id) {
			if said.State != "" && (m.seen || m.phase != memory.Starting && slices.Contains(concerned, m.Party.Environment)) {
				m.Line.Tell(MethodPrompt, params)
			}
			k.handle(k.books.Phase(now, m.Party, m.phase, k.promptOver(m.Party)))
		}
		if host := k.members[memory.Host(id)]; host != nil {
			k.handle(k.books.Phase(now, host.Party, host.phase, k.promptOver(host.Party)))
		}
		if said.State == "end" {
			k.sweepSoon()
		}
	})
}

// running is a prompt under way, and the words in which its host told of it.
type running struct {
	Prompt
	params json.RawMessage
}

// tellPrompts tells a worker that has started in the middle of prompts of those that it is part of.
func (k *Keeper) tellPrompts(m *member) {
	s := k.sessions[m.Party.Session]
	if s == nil || m.Party.IsHost() {
		return
	}
	for _, prompt := range s.running {
		if slices.Contains(prompt.Environments, m.Party.Environment) {
			m.Line.Tell(MethodPrompt, prompt.params)
		}
	}
}

// promptOver tells that no prompt which runs or waits has a node of a party in its graph. Of a host that has not spoken of
// its prompts, as after the supervisor's restart, nothing is known, and its workers count as needed; a session without a
// host has no prompts.
func (k *Keeper) promptOver(party memory.Party) bool {
	s := k.sessions[party.Session]
	if s == nil || !s.known {
		return k.members[memory.Host(party.Session)] == nil
	}
	if party.IsHost() {
		return len(s.running) == 0
	}
	if slices.Contains(s.queued, party.Environment) {
		return false
	}
	for _, prompt := range s.running {
		if slices.Contains(prompt.Environments, party.Environment) {
			return false
		}
	}
	return true
}

// Need notes what a host still needs of a worker.
func (k *Keeper) Need(session string, said Need) {
	k.post(func() {
		party := memory.Party{Session: session, Environment: said.Environment, Generation: said.Generation}
		if said.Generation == 0 {
			if m := k.workerOf(session, said.Environment); m != nil {
				party = m.Party
			}
		}
		k.books.Need(party, said.StandIns, said.Handles)
	})
}

// hostNeeds notes what a host's census says about its workers.
func (k *Keeper) hostNeeds(host *member) {
	if host.census.StandIns == nil && host.census.Handles == nil {
		return
	}
	for _, m := range k.sessionWorkers(host.Party.Session) {
		k.books.Need(m.Party, host.census.StandIns[m.Party.Environment], host.census.Handles[m.Party.Environment])
	}
}
