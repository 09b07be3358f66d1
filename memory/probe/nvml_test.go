//go:build (linux && cgo) || windows

package probe

import (
	"errors"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// changingCard is a driver with one card on which one process holds something else at every call.
type changingCard struct {
	calls[int]
	held []uint64
	fail int // the call that fails; 0: none
	made int
}

const changingTotal = 24 << 30

func (c *changingCard) next() (uint64, error) {
	held := c.held[0]
	if len(c.held) > 1 {
		c.held = c.held[1:]
	}
	if c.made++; c.made == c.fail {
		return 0, errors.New("it is gone")
	}
	return held, nil
}

func (c *changingCard) memory(int) (total, free, reserved uint64, err error) {
	held, err := c.next()
	return changingTotal, changingTotal - held, 0, err
}

func (c *changingCard) processes(int) ([]ProcessBytes, error) {
	held, err := c.next()
	return []ProcessBytes{{PID: 1, Bytes: memory.Bytes(held)}}, err
}

func TestWhatAProcessHoldsIsNotFreeAsWellHoweverItChangesBetweenTheCalls(t *testing.T) {
	const gib = 1 << 30
	for name, held := range map[string][]uint64{
		"still":                {13 * gib, 13 * gib, 13 * gib},
		"loads at first":       {0, 13 * gib, 13 * gib},
		"loads at last":        {0, 0, 13 * gib},
		"loads all the time":   {1 * gib, 7 * gib, 13 * gib},
		"frees at first":       {13 * gib, 0, 0},
		"frees at last":        {13 * gib, 13 * gib, 0},
		"frees all the time":   {13 * gib, 7 * gib, 1 * gib},
		"frees and loads anew": {13 * gib, 0, 13 * gib},
	} {
		var card Card
		source := &nvmlSource[int]{calls: &changingCard{held: held}, ownPIDs: true}
		source.figures(0, &card)
		if card.Err != nil || !card.Attributed || len(card.Processes) != 1 {
			t.Fatalf("%s: got %+v", name, card)
		}
		if sum := card.Free + card.Processes[0].Bytes; sum > changingTotal {
			t.Errorf("%s: %d bytes free and %d held are more than the card has", name, card.Free, card.Processes[0].Bytes)
		}
	}
}

func TestACardThatFailsBetweenTheCallsIsLost(t *testing.T) {
	for _, fail := range []int{1, 3} {
		var card Card
		source := &nvmlSource[int]{calls: &changingCard{held: []uint64{0}, fail: fail}}
		if source.figures(0, &card); card.Err == nil || len(card.Processes) > 0 {
			t.Errorf("call %d: got %+v", fail, card)
		}
	}
	var card Card
	source := &nvmlSource[int]{calls: &changingCard{held: []uint64{0}, fail: 2}, ownPIDs: true}
	if source.figures(0, &card); card.Err != nil || card.Attributed || card.Free != changingTotal {
		t.Errorf("without a list: got %+v", card)
	}
}
