package spawn

import (
	"fmt"
	"sync"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// Party is a process that sends or receives memory files: a worker's Python, or a client.
type Party struct {
	// ID is the worker's ID, or the client's owner ID. The IDs of a party's own files begin with it and a dash.
	ID string
	// PID is the process as the connection's credentials or the launcher named it; what messages claim is not used.
	PID int
}

// FileCount tells how many deliveries of a file a party has received and no longer maps.
type FileCount struct {
	ID    string `json:"id"`
	Count int64  `json:"count"`
}

// Inventory is what a process says it owns and holds, after an adoption or a reconnect.
type Inventory struct {
	Owned         []wire.File `json:"owned"`
	Holds         []FileCount `json:"holds"`
	ReservedBytes int64       `json:"reserved_bytes"`
}

// HolderOptions configure a Holder.
type HolderOptions struct {
	// QuotaBytes bounds what all parties reserve together; DefaultMemoryFileQuota is a good value.
	QuotaBytes int64
	// Folder is where parties keep their files on systems without memory files; unused on Linux.
	Folder string
	// Free is called when nobody refers to an owner's files any more, with their IDs, outside the Holder's lock. It
	// must not block. It is not called for an owner that was dropped.
	Free func(owner string, ids []string)
}

// Holder is the table of the memory files that are on their way or mapped somewhere. It keeps each open, so that a
// sender that dies after its message loses nothing, and counts who refers to it. It decides nothing.
type Holder struct {
	options HolderOptions

	mu       sync.Mutex
	files    map[string]*heldFile
	holds    map[string]map[string]int64 // party, file ID, deliveries not yet released
	owners   map[string]*fileOwner
	reserved int64
	closed   bool
}

// heldFile is one content of one memory file.
type heldFile struct {
	file    wire.File // as it is offered by us; FD and PID are ours once open
	owner   string
	content openFile // nil content when it is known from an inventory alone
	transit int64    // shipments received and neither delivered nor discarded
	holders int64    // deliveries not yet released, of all parties
}

// fileOwner is the account of one party that makes files.
type fileOwner struct {
	reserved int64 // bytes reserved and not returned
	files    map[string]*heldFile
	dropped  bool // gone; what it reserved is what is still held of its files
}

// NewHolder makes an empty table.
func NewHolder(options HolderOptions) *Holder {
	return &Holder{
		options: options,
		files:   make(map[string]*heldFile),
		holds:   make(map[string]map[string]int64),
		owners:  make(map[string]*fileOwner),
	}
}

// Reserve books bytes for a file that its owner is about to allocate. Beyond the quota it returns a *wire.Error of kind
// quota with the figures. held is what the owner has booked already, which replaces what is known of that: a request
// that is sent again, because its first answer was lost, books once. Negative: it does not say.
func (h *Holder) Reserve(owner string, bytes, held int64) error {
	if bytes < 0 || bytes > mostBytes || held > mostBytes {
		return wire.Errorf(wire.KindBadRequest, "reserving %d bytes of memory files beside %d is not possible", bytes, held)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return wire.NewError(wire.KindStopped, "the supervisor is ending: no memory files are made any more")
	}
	if held >= 0 {
		h.setReserved(owner, held)
	}
	if free := h.options.QuotaBytes - h.reserved; bytes > free {
		err := wire.Errorf(wire.KindQuota, "a memory file of %d bytes does not fit: %d of the quota of %d bytes are in use",
			bytes, h.reserved, h.options.QuotaBytes)
		err.Data.Remedy = "send less at once, or raise the memory file quota in the settings"
		return err
	}
	account := h.account(owner)
	account.reserved += bytes
	h.reserved += bytes
	return nil
}

// mostBytes is more than any machine has, and far from where sums of it overflow.
const mostBytes = 1 << 50

// Return takes back a reservation: the owner destroyed a file of that many bytes.
func (h *Holder) Return(owner string, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	account := h.owners[owner]
	if account == nil || account.dropped || bytes <= 0 {
		return
	}
	bytes = min(bytes, account.reserved)
	account.reserved -= bytes
	h.reserved -= bytes
	h.forgetIdleOwner(owner, account)
}

// setReserved takes an owner's word for what it has reserved.
func (h *Holder) setReserved(owner string, bytes int64) {
	account := h.account(owner)
	if !account.dropped {
		h.reserved += bytes - account.reserved
		account.reserved = bytes
	}
	h.forgetIdleOwner(owner, account)
}

func (h *Holder) account(owner string) *fileOwner {
	account := h.owners[owner]
	if account == nil {
		account = &fileOwner{files: make(map[string]*heldFile)}
		h.owners[owner] = account
	}
	return account
}

func (h *Holder) forgetIdleOwner(owner string, account *fileOwner) {
	if account.reserved == 0 && len(account.files) == 0 {
		delete(h.owners, owner)
	}
}

// HolderUsage is what a Holder keeps.
type HolderUsage struct {
	QuotaBytes    int64
	ReservedBytes int64 // by all owners, pooled files included
	Files         int   // on their way or mapped by somebody
	FileBytes     int64
	Owners        map[string]int64 // reserved bytes by owner
	Holders       map[string]int   // files mapped, by party
}

// Usage counts.
func (h *Holder) Usage() HolderUsage {
	h.mu.Lock()
	defer h.mu.Unlock()
	usage := HolderUsage{
		QuotaBytes:    h.options.QuotaBytes,
		ReservedBytes: h.reserved,
		Files:         len(h.files),
		Owners:        make(map[string]int64, len(h.owners)),
		Holders:       make(map[string]int, len(h.holds)),
	}
	for _, file := range h.files {
		usage.FileBytes += file.file.Size
	}
	for name, account := range h.owners {
		usage.Owners[name] = account.reserved
	}
	for name, holds := range h.holds {
		usage.Holders[name] = len(holds)
	}
	return usage
}

// String is for logs.
func (u HolderUsage) String() string {
	return fmt.Sprintf("%d files of %d bytes, %d of %d bytes reserved", u.Files, u.FileBytes, u.ReservedBytes, u.QuotaBytes)
}
