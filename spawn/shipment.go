package spawn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// ErrPartyEnded is why files can not be received whose owner has ended before they were opened: they went with it.
var ErrPartyEnded = errors.New("the process has ended, and the file with it")

// Shipment is the files of one received message until it is passed on. Deliver or Discard ends it; both may be called
// after that and do nothing.
type Shipment struct {
	holder *Holder
	files  []*heldFile
	over   bool
}

// Receive takes the files of a message. What is not known yet is opened through the sender's process and compared with
// what the message says; a known ID must mean the same file. On an error nothing is held, and the sender is told that
// its own files are free.
func (h *Holder) Receive(from Party, files []wire.File) (*Shipment, error) {
	shipment := &Shipment{holder: h}
	for index := range files {
		held, err := h.take(from, &files[index])
		if err != nil {
			shipment.Discard()
			h.refuse(from, files[index:])
			return nil, fmt.Errorf("receiving memory file %q of %s: %w", files[index].ID, from.ID, err)
		}
		shipment.files = append(shipment.files, held)
	}
	return shipment, nil
}

// refuse gives files back that were not taken: those that their sender owns and that nobody knows.
func (h *Holder) refuse(from Party, files []wire.File) {
	var unknown []string
	h.mu.Lock()
	account := h.owners[from.ID]
	for index := range files {
		owner, err := ownerOf(files[index].ID)
		if err == nil && owner == from.ID && h.files[files[index].ID] == nil && !h.closed && (account == nil || !account.dropped) {
			unknown = append(unknown, files[index].ID)
		}
	}
	h.mu.Unlock()
	if len(unknown) > 0 {
		h.announce(freeList{from.ID: unknown})
	}
}

// take counts one more transit of a file, which it opens where necessary.
func (h *Holder) take(from Party, offered *wire.File) (*heldFile, error) {
	owner, err := ownerOf(offered.ID)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errors.New("the supervisor is ending")
	}
	held := h.files[offered.ID]
	switch {
	case held == nil:
		held = &heldFile{file: *offered, owner: owner}
	case held.file.Size != offered.Size || held.file.Inode != offered.Inode || held.file.Path != offered.Path:
		return nil, fmt.Errorf("it was a file of %d bytes with inode %d before, and is now said to have %d bytes and inode %d",
			held.file.Size, held.file.Inode, offered.Size, offered.Inode)
	}
	if !held.content.isOpen() {
		// Microseconds: the lock is held so that two messages with one file open it once.
		if err := held.open(from, offered, h.options.Folder); err != nil {
			return nil, err
		}
	}
	if h.files[offered.ID] == nil {
		h.files[offered.ID] = held
		h.account(owner).files[offered.ID] = held
	}
	held.transit++
	return held, nil
}

// open opens what a party offers and makes it ours to offer.
func (f *heldFile) open(from Party, offered *wire.File, folder string) error {
	content, err := openOffered(from, offered, folder)
	if err != nil {
		return err
	}
	f.content = content
	f.file = content.offer(*offered)
	return nil
}

// ownerOf finds the party in a file's ID, which is "<owner>-<number>".
func ownerOf(id string) (string, error) {
	dash := strings.LastIndexByte(id, '-')
	if dash <= 0 || dash == len(id)-1 || len(id) > 256 {
		return "", errors.New("its ID is not <owner>-<number>")
	}
	return id[:dash], nil
}

// Files are the files as their next receiver can open them: with this process's ID and descriptors.
func (s *Shipment) Files() []wire.File {
	if s == nil || len(s.files) == 0 {
		return nil
	}
	files := make([]wire.File, len(s.files))
	for index, held := range s.files {
		files[index] = held.file
	}
	return files
}

// Deliver counts the files for their receiver and returns them as it can open them. It must be called before they are
// sent. When sending fails the receiver is gone: Drop it.
func (s *Shipment) Deliver(to Party) []wire.File {
	files := s.Files()
	s.end(func(h *Holder, held *heldFile) {
		holds := h.holds[to.ID]
		if holds == nil {
			holds = make(map[string]int64)
			h.holds[to.ID] = holds
		}
		holds[held.file.ID]++
		held.holders++
	})
	return files
}

// Discard gives the files back: the message goes nowhere.
func (s *Shipment) Discard() { s.end(func(*Holder, *heldFile) {}) }

func (s *Shipment) end(count func(*Holder, *heldFile)) {
	if s == nil {
		return
	}
	h := s.holder
	var free freeList
	h.mu.Lock()
	if !s.over {
		s.over = true
		for _, held := range s.files {
			held.transit--
			if !h.closed {
				count(h, held)
			}
			h.settle(held, &free)
		}
	}
	h.mu.Unlock()
	h.announce(free)
}

// freeList collects, by owner, the IDs of files that nobody refers to any more.
type freeList map[string][]string

// settle forgets a file that nobody refers to.
func (h *Holder) settle(held *heldFile, free *freeList) {
	if held.transit > 0 || held.holders > 0 || h.files[held.file.ID] != held {
		return
	}
	delete(h.files, held.file.ID)
	account := h.owners[held.owner]
	delete(account.files, held.file.ID)
	if account.dropped {
		account.reserved -= held.file.Size
		h.reserved -= held.file.Size
		held.content.remove()
		h.forgetIdleOwner(held.owner, account)
	} else {
		if *free == nil {
			*free = make(freeList)
		}
		(*free)[held.owner] = append((*free)[held.owner], held.file.ID)
		h.forgetIdleOwner(held.owner, account)
	}
	held.content.close()
}

func (h *Holder) announce(free freeList) {
	if h.options.Free == nil {
		return
	}
	for owner, ids := range free {
		h.options.Free(owner, ids)
	}
}

// Released takes a party's word that it no longer maps some deliveries. More than it had are ignored.
func (h *Holder) Released(party string, counts []FileCount) {
	var free freeList
	h.mu.Lock()
	for _, released := range counts {
		h.release(party, released.ID, released.Count, &free)
	}
	h.mu.Unlock()
	h.announce(free)
}

func (h *Holder) release(party, id string, count int64, free *freeList) {
	holds := h.holds[party]
	count = min(count, holds[id])
	if count <= 0 {
		return
	}
	if holds[id] -= count; holds[id] == 0 {
		delete(holds, id)
		if len(holds) == 0 {
			delete(h.holds, party)
		}
	}
	held := h.files[id]
	held.holders -= count
	h.settle(held, free)
}

// Drop forgets a party that is gone: what it held is released, and its reservation shrinks to those of its files that
// others still refer to; they stay open.
func (h *Holder) Drop(party string) {
	var free freeList
	h.mu.Lock()
	if account := h.owners[party]; account != nil && !account.dropped {
		account.dropped = true
		var still int64
		for _, held := range account.files {
			still += held.file.Size
		}
		h.reserved += still - account.reserved
		account.reserved = still
		h.forgetIdleOwner(party, account)
	}
	for id, count := range h.holds[party] {
		h.release(party, id, count, &free)
	}
	h.mu.Unlock()
	h.announce(free)
}

// Adopt books what a party says it owns and holds, in place of what was known of it: after a restart or a reconnect.
// Files that can not be opened are left out and reported; the rest is booked. Call Settle when every party has
// answered.
func (h *Holder) Adopt(party Party, inventory Inventory) error {
	var problems []error
	var free freeList
	h.mu.Lock()
	account := h.account(party.ID)
	account.dropped = false
	h.reserved += max(0, inventory.ReservedBytes) - account.reserved
	account.reserved = max(0, inventory.ReservedBytes)
	for index := range inventory.Owned {
		offered := &inventory.Owned[index]
		held := h.files[offered.ID]
		if held != nil && held.content.isOpen() {
			continue
		}
		if owner, err := ownerOf(offered.ID); err != nil || owner != party.ID {
			problems = append(problems, fmt.Errorf("memory file %q is not one of %s's own", offered.ID, party.ID))
			continue
		}
		if held == nil {
			held = &heldFile{file: *offered, owner: party.ID}
		}
		if err := held.open(party, offered, h.options.Folder); err != nil {
			problems = append(problems, fmt.Errorf("adopting memory file %q: %w", offered.ID, err))
			continue
		}
		h.files[offered.ID] = held
		account.files[offered.ID] = held
	}
	before := h.holds[party.ID]
	now := make(map[string]int64, len(inventory.Holds))
	for _, hold := range inventory.Holds {
		owner, err := ownerOf(hold.ID)
		if err != nil || hold.Count <= 0 {
			problems = append(problems, fmt.Errorf("%s says that it holds %q %d times", party.ID, hold.ID, hold.Count))
			continue
		}
		held := h.files[hold.ID]
		if held == nil { // its owner has not answered yet, or is gone: whoever offers it next opens it
			held = &heldFile{file: wire.File{ID: hold.ID}, owner: owner}
			h.files[hold.ID] = held
			h.account(owner).files[hold.ID] = held
		}
		held.holders += hold.Count
		now[hold.ID] += hold.Count
	}
	if len(now) > 0 {
		h.holds[party.ID] = now
	} else {
		delete(h.holds, party.ID)
	}
	for id, count := range before {
		held := h.files[id]
		held.holders -= count
		h.settle(held, &free)
	}
	h.forgetIdleOwner(party.ID, account)
	h.mu.Unlock()
	h.announce(free)
	return errors.Join(problems...)
}

// Settle frees what nobody refers to; to be called once after all parties of an adoption have answered.
func (h *Holder) Settle() {
	var free freeList
	h.mu.Lock()
	for _, held := range h.files {
		h.settle(held, &free)
	}
	h.mu.Unlock()
	h.announce(free)
}

// Close closes every file. Everything but Usage fails or does nothing afterwards.
func (h *Holder) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, held := range h.files {
		held.content.close()
	}
	h.files = make(map[string]*heldFile)
	h.holds = make(map[string]map[string]int64)
	h.owners = make(map[string]*fileOwner)
	h.reserved = 0
}
