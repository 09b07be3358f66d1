package budget

import (
	"context"
	"maps"
	"slices"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// View is everything that is known now; false when the Keeper or the context has ended.
func (k *Keeper) View(ctx context.Context) (api.Budget, bool) {
	var budget api.Budget
	ok := k.inside(ctx, func() { budget = k.view() })
	return budget, ok
}

func (k *Keeper) view() api.Budget {
	budget := api.Budget{Cards: []api.BudgetCard{}, Parties: []api.BudgetParty{}, CardsError: k.cards.err, Estimates: k.estimate.known.Count()}
	charges := make(map[memory.Party]memory.Bytes)
	seen := make(map[string]bool)
	for _, card := range k.books.View() {
		seen[card.Device] = true
		for i := range card.Holders {
			charges[card.Holders[i].Party] += max(0, card.Holders[i].Charge)
		}
		budget.Cards = append(budget.Cards, k.viewCard(&card))
	}
	for _, device := range slices.Sorted(maps.Keys(k.cards.lost)) {
		if !seen[device] {
			budget.Cards = append(budget.Cards, api.BudgetCard{Device: device, Error: k.cards.lost[device],
				Holders: []api.BudgetHolder{}, Leases: []api.BudgetLease{}, Waiting: []api.BudgetAsk{}})
		}
	}
	for _, one := range k.takeover.kept {
		at := slices.IndexFunc(budget.Cards, func(card api.BudgetCard) bool { return card.Device == one.ask.device })
		if at < 0 {
			continue // nothing is known of that card yet
		}
		party := one.ask.member.Party
		budget.Cards[at].Waiting = append(budget.Cards[at].Waiting, api.BudgetAsk{Session: party.Session, Environment: party.Environment,
			Generation: party.Generation, Weights: int64(one.wanted.Load.Weights), Models: one.wanted.Models})
	}
	budget.RAM = api.BudgetRAM{Total: int64(k.machine.Total), Available: int64(k.machine.Available), Limit: int64(k.machine.Limit), LimitedBy: k.machine.LimitedBy}
	pinners, _ := k.pinners()
	budget.Pins.Budget = int64(memory.PinBudget(pinners, k.pinRAM(pinners)))
	workers := make(map[memory.Party]memory.WorkerState)
	for _, state := range k.books.Workers() {
		workers[state.Party] = state
	}
	for _, m := range k.order {
		party := api.BudgetParty{Session: m.Party.Session, Environment: m.Party.Environment, Generation: m.Party.Generation,
			Phase: string(m.phase), Memory: k.viewMember(m, charges[m.Party])}
		party.Memory.PromptOver = k.promptOver(m.Party)
		party.Memory.StandIns = workers[m.Party].StandIns
		budget.Pins.Pinned += party.Memory.Pinned
		budget.Parties = append(budget.Parties, party)
	}
	return budget
}

func (k *Keeper) viewMember(m *member, charge memory.Bytes) api.WorkerMemory {
	seen := api.WorkerMemory{VRAM: int64(charge), Pinned: int64(max(0, m.census.Pinned)), PinCap: int64(m.pins.force),
		VRAMCap: int64(m.limit.VRAM), PinnedCap: int64(m.limit.Pinned), ResidentCap: int64(m.limit.Resident),
		Remarks: slices.Clone(m.remarks), Silent: !m.seen}
	if reserve := m.assigned.inForce.Reserve; reserve != nil {
		seen.Reserve = int64(*reserve)
		if s := k.sessions[m.Party.Session]; s != nil && s.reserve != nil {
			seen.Reserve = int64(*reserve - s.reserve.Base())
		}
	}
	if headroom := m.assigned.inForce.Headroom; headroom != nil {
		seen.Headroom = int64(*headroom)
	}
	for _, device := range m.census.Devices {
		for _, model := range device.Models {
			seen.Models = append(seen.Models, model.Name)
		}
	}
	for _, remark := range []string{m.attention, m.assigned.missing} {
		if remark != "" {
			seen.Remarks = append(seen.Remarks, remark)
		}
	}
	return seen
}

func (k *Keeper) viewCard(card *memory.CardView) api.BudgetCard {
	reading := &card.Reading
	seen := api.BudgetCard{
		Device: card.Device, Error: k.cards.lost[card.Device], Total: int64(reading.Total), Free: int64(reading.Free), Driver: int64(reading.Driver),
		Promised: int64(card.Promised), Available: int64(card.Available), Unattributed: int64(card.Unattributed),
		Source: string(reading.Source), At: reading.At, ProcessLocal: reading.ProcessLocal, Attributed: reading.Attributed,
		Holders: []api.BudgetHolder{}, Leases: []api.BudgetLease{}, Waiting: []api.BudgetAsk{},
	}
	if driven := k.cards.card(card.Device); driven != nil {
		seen.Name, seen.PCI, seen.Parent = driven.Name, driven.PCI, driven.Parent
	}
	for i := range card.Holders {
		h := &card.Holders[i]
		holder := api.BudgetHolder{Session: h.Party.Session, Environment: h.Party.Environment, Generation: h.Party.Generation,
			Charge: int64(h.Charge), Reported: int64(h.Reported), Models: h.Models, Contradicted: h.Contradicted,
			Unresponsive: h.Unresponsive, Dry: h.Dry, Asked: int64(h.Asked)}
		if h.Driver >= 0 {
			driver := int64(h.Driver)
			holder.Driver = &driver
		}
		seen.Holders = append(seen.Holders, holder)
	}
	for i := range card.Leases {
		lease := &card.Leases[i]
		seen.Leases = append(seen.Leases, api.BudgetLease{Session: lease.Party.Session, Environment: lease.Party.Environment,
			Generation: lease.Party.Generation, Bytes: int64(lease.Bytes), Forced: lease.Forced, Working: lease.Working, GrantedAt: lease.GrantedAt})
	}
	for i := range card.Waiting {
		ask := &card.Waiting[i]
		seen.Waiting = append(seen.Waiting, api.BudgetAsk{Session: ask.Party.Session, Environment: ask.Party.Environment,
			Generation: ask.Party.Generation, Weights: int64(ask.Load.Weights), Models: ask.Models})
	}
	return seen
}
