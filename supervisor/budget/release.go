package budget

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// carryOut asks a party for memory.
func (k *Keeper) carryOut(action memory.Action) {
	m := k.members[action.Party]
	if m == nil {
		return
	}
	k.release(m, action, nil)
}

// release sends a release and takes its receipt. then may be nil; it runs on the owner's goroutine.
func (k *Keeper) release(m *member, action memory.Action, then func(Receipt, error)) {
	request := Release{Kind: action.Kind, Bytes: action.Bytes, Keep: action.Keep, Cause: action.Cause}
	if action.Device != "" && action.Kind != memory.FullRelease {
		named := k.nameFor(m, action.Device)
		request.Device = &named
	}
	if action.Kind == memory.FreeMemory {
		request.KeepEnvironments = []string{"*"}
		if action.For.Session == m.Party.Session {
			request.KeepEnvironment = action.For.Environment
		}
	}
	m.Line.Ask(MethodRelease, request, func(result json.RawMessage, err error) {
		var receipt Receipt
		if err == nil {
			err = json.Unmarshal(result, &receipt)
		}
		if err == nil && action.Kind == memory.FullRelease && !m.Party.IsHost() {
			k.config.Released(m.Party) // here, where the process's next answer comes later
		}
		k.post(func() {
			if k.members[m.Party] == m {
				k.takeReceipt(m, action, receipt, err)
			}
			if then != nil {
				then(receipt, err)
			}
		})
	})
}

// takeReceipt books what a party gave back.
func (k *Keeper) takeReceipt(m *member, action memory.Action, receipt Receipt, err error) {
	now := time.Now()
	if action.Kind == memory.ReleasePins {
		m.pins.asked = time.Time{}
	}
	if err != nil {
		if !isUnknown(err) {
			k.event("memory.release_failed", m.Party, action.Device, err.Error(), memory.Terms{memory.Fact("kind", string(action.Kind))})
			return
		}
		m.deaf, m.askedFull = true, time.Time{} // it has nothing that could be given back in this way
		if action.Kind == memory.PartialRelease || action.Kind == memory.FreeMemory || action.Kind == memory.FullRelease {
			k.handle(k.books.Receipt(now, memory.Receipt{Party: m.Party, Device: action.Device, Held: -1}))
		}
		return
	}
	k.receiptEvents(m, action, receipt)
	if receipt.Handles != nil && !m.Party.IsHost() {
		k.books.Handles(m.Party, *receipt.Handles)
	}
	if action.Kind != memory.ReleasePins {
		for _, one := range k.receipts(m, action, receipt) {
			if one.Held >= 0 {
				k.receiptReserve(m.Party, one.Device, one.Held+k.overhead(receipt.Census, m, one.Device))
			}
			k.handle(k.books.Receipt(now, one))
		}
	}
	if receipt.Census != nil {
		k.takeCensus(m, *receipt.Census, now)
	}
	if m.pins.own > 0 && receipt.PinsFreed > 0 {
		k.unsplit = true
	}
}

// receipts is a receipt as the books take it, one for each device.
func (k *Keeper) receipts(m *member, action memory.Action, receipt Receipt) []memory.Receipt {
	freed := make(map[string]memory.Bytes)
	for name, bytes := range receipt.Freed {
		freed[k.cards.locate(m.Environ, k.named(m, name))] += bytes
	}
	held := make(map[string]memory.Bytes)
	if receipt.Census != nil && (!m.seen || receipt.Census.Sequence > m.census.Sequence) {
		for _, device := range receipt.Census.Devices {
			if isCard(device.DeviceCensus.Device) {
				held[k.cards.locate(m.Environ, Device{device.DeviceCensus.Device, device.Identity})] = max(0, device.Held)
			}
		}
	}
	devices := []string{action.Device}
	if action.Device == "" || action.Kind == memory.FullRelease {
		devices = devices[:0]
		for device := range freed {
			devices = append(devices, device)
		}
		for device := range held {
			if _, both := freed[device]; !both {
				devices = append(devices, device)
			}
		}
		slices.Sort(devices)
	}
	receipts := make([]memory.Receipt, 0, len(devices))
	for _, device := range devices {
		one := memory.Receipt{Party: m.Party, Device: device, Freed: freed[device], Held: -1}
		if bytes, ok := held[device]; ok {
			one.Held = bytes
		}
		receipts = append(receipts, one)
	}
	return receipts
}

// named is a device of a receipt with the identity that its process has told before.
func (k *Keeper) named(m *member, device string) Device {
	for _, named := range m.names {
		if named.Device == device {
			return named
		}
	}
	return Device{Device: device}
}

// overhead is what a party costs on a device beyond what it holds, by a fresh census.
func (k *Keeper) overhead(census *Census, m *member, device string) memory.Bytes {
	if census == nil {
		return 0
	}
	for _, said := range census.Devices {
		if k.cards.locate(m.Environ, Device{said.DeviceCensus.Device, said.Identity}) == device {
			return k.charge(&said.DeviceCensus) - max(0, said.Held)
		}
	}
	return 0
}

// receiptEvents tells of the rungs of a release that failed, and of what no release moves.
func (k *Keeper) receiptEvents(m *member, action memory.Action, receipt Receipt) {
	terms := memory.Terms{memory.Fact("kind", string(action.Kind)), memory.Amount("pins freed", receipt.PinsFreed)}
	failed := false
	for _, step := range receipt.Steps {
		terms = append(terms, memory.Amount(step.Name, step.Freed))
		if step.Error != "" {
			failed = true
			terms = append(terms, memory.Fact(step.Name+" failed", step.Error))
		}
	}
	if receipt.Stuck > 0 {
		terms = append(terms, memory.Amount("not moved by it", receipt.Stuck))
	}
	for class, bytes := range receipt.Raw {
		terms = append(terms, memory.Amount("plain modules of "+class, bytes))
	}
	kind := "memory.released"
	if failed {
		kind = "memory.released_in_part"
	}
	for device, bytes := range receipt.Freed {
		terms = append(terms, memory.Amount("freed on "+device, bytes))
	}
	k.event(kind, m.Party, action.Device, action.Cause, terms)
}

// Wish is what an operator or a host wants of one party.
type Wish struct {
	Party  memory.Party
	Kind   memory.ActionKind
	Bytes  memory.Bytes // for partial_release and release_pins
	Device string       // for partial_release; empty: the one on which it holds most
	Keep   []string
	Cause  string
}

// Granted is what came of a Wish.
type Granted struct {
	Party     memory.Party
	Kind      memory.ActionKind
	Freed     memory.Bytes // on all devices
	PinsFreed memory.Bytes
	Steps     []Step
	Busy      bool // it computes, and was not asked
	Nothing   bool // nothing in its process can be given back
	Error     string
}

// Release asks parties for memory and waits for their receipts until the context ends. A party that computes is never
// asked for what its computation uses; nobody is started in order to be asked.
func (k *Keeper) Release(ctx context.Context, wishes []Wish) []Granted {
	granted := make([]Granted, len(wishes))
	answers := make(chan int, len(wishes))
	waiting := 0
	got := make([]Granted, len(wishes)) // the owner's
	asked := k.inside(ctx, func() {
		for i, wish := range wishes {
			got[i] = Granted{Party: wish.Party, Kind: wish.Kind}
			if !k.grantWish(wish, &got[i], func() { answers <- i }) {
				answers <- i
			}
		}
	})
	for i, wish := range wishes {
		granted[i] = Granted{Party: wish.Party, Kind: wish.Kind, Error: "it did not answer in time"}
	}
	if !asked {
		return granted
	}
	for waiting < len(wishes) {
		select {
		case i := <-answers:
			granted[i] = got[i]
			waiting++
		case <-ctx.Done():
			return granted
		case <-k.done:
			return granted
		}
	}
	return granted
}

// grantWish asks one party; false: it was not asked, and got says why.
func (k *Keeper) grantWish(wish Wish, got *Granted, done func()) bool {
	m := k.members[wish.Party]
	switch {
	case m == nil:
		got.Error = "its process has ended"
		return false
	case m.deaf:
		got.Nothing = true
		return false
	case !m.Party.IsHost() && !m.phase.Idle():
		got.Busy = true
		return false
	}
	action := memory.Action{Kind: wish.Kind, Party: wish.Party, Bytes: wish.Bytes, Keep: wish.Keep, Cause: wish.Cause}
	if wish.Kind == memory.PartialRelease || wish.Kind == memory.FreeMemory {
		if action.Device = wish.Device; action.Device == "" {
			action.Device = k.fullest(m)
		}
		if action.Device == "" {
			got.Error = "it holds nothing on a card"
			return false
		}
	}
	k.event("memory."+string(wish.Kind), wish.Party, action.Device, wish.Cause, memory.Terms{memory.Amount("asked", wish.Bytes)})
	k.release(m, action, func(receipt Receipt, err error) {
		for _, bytes := range receipt.Freed {
			got.Freed += bytes
		}
		got.PinsFreed, got.Steps = receipt.PinsFreed, receipt.Steps
		switch {
		case isUnknown(err):
			got.Nothing = true
		case err != nil:
			got.Error = err.Error()
		}
		done()
	})
	return true
}

// fullest is the device on which a member holds most.
func (k *Keeper) fullest(m *member) (name string) {
	var most memory.Bytes
	for _, device := range m.census.Devices {
		if device.Held > most && isCard(device.DeviceCensus.Device) {
			most, name = device.Held, k.cards.locate(m.Environ, Device{device.DeviceCensus.Device, device.Identity})
		}
	}
	return name
}
