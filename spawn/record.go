package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/sys/atomicwriter"
)

// recordVersion is the version of a record's format. A reader takes every version up to its own and refuses newer ones.
const recordVersion = 1

// Names inside a worker's folder.
const (
	recordName      = "record.json"
	launcherLogName = "launcher.log"
)

// maxRecordBytes bounds what is read of a record; a load request is at most a frame.
const maxRecordBytes = 4 << 20

// Record is what is on disk about one worker: everything that a later supervisor needs to adopt it or to clean up
// after it.
type Record struct {
	Version     int    `json:"version"`
	Worker      string `json:"worker"`
	Session     string `json:"session"`
	Environment string `json:"environment"`
	Generation  uint64 `json:"generation"`

	Launcher Process `json:"launcher"`
	Python   Process `json:"python"`
	Host     Process `json:"host,omitzero"`

	// Network and Address are where the launcher listens: "unix" and a file name in the worker's folder, or "tcp".
	Network         string `json:"network"`
	Address         string `json:"address"`
	ProtocolVersion int    `json:"protocol_version"` // of the go-plugin contract
	// Key is what callers of the launcher must show; the file is readable by its user alone.
	Key string `json:"key"`

	BinaryVersion string          `json:"binary_version"` // version of the launcher's program
	Load          json.RawMessage `json:"load,omitempty"` // parameters of the load request
	LauncherLog   string          `json:"launcher_log"`   // file name in the worker's folder
	// Cgroup is the path of the control group that holds the tree; empty when there is none, and CgroupNote says why.
	Cgroup     string        `json:"cgroup,omitempty"`
	CgroupNote string        `json:"cgroup_note,omitempty"`
	OrphanWait time.Duration `json:"orphan_wait_ns"`
	StopGrace  time.Duration `json:"stop_grace_ns"`
	Created    time.Time     `json:"created"`

	// Folder is where the record was found.
	Folder string `json:"-"`
}

// createFolder makes a worker's folder with mode 0700. It is an error if it exists.
func createFolder(folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return fmt.Errorf("making the folder of all workers: %w", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("making the worker's folder: %w", err)
	}
	return nil
}

// write replaces the record on disk: a reader sees the old one or the new one, whole, also after a power cut.
func (r *Record) write() error {
	r.Version = recordVersion
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of worker %s: %w", r.Worker, err)
	}
	path := filepath.Join(r.Folder, recordName)
	startTurns.Do(func() {
		if err = atomicwriter.WriteFile(path, append(content, '\n'), 0o600); err == nil {
			err = syncFolder(r.Folder)
		}
	})
	if err != nil {
		return fmt.Errorf("writing the record of worker %s: %w", r.Worker, err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// RecordError is a record that can not be used. RemoveStale ends and removes what its folder stands for.
type RecordError struct {
	Folder string
	Err    error
}

// Error implements error.
func (e *RecordError) Error() string {
	return fmt.Sprintf("reading the record in %s: %v", e.Folder, e.Err)
}

// Unwrap implements errors.Unwrap.
func (e *RecordError) Unwrap() error { return e.Err }

// LoadRecord reads the record in a worker's folder.
func LoadRecord(folder string) (Record, error) {
	fail := func(err error) (Record, error) {
		return Record{}, &RecordError{Folder: folder, Err: err}
	}
	path := filepath.Join(folder, recordName)
	info, err := os.Stat(path)
	if err != nil {
		return fail(err)
	}
	if info.Size() > maxRecordBytes {
		return fail(fmt.Errorf("it has %d bytes, at most %d are believable", info.Size(), maxRecordBytes))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fail(err)
	}
	var record Record
	if err := json.Unmarshal(content, &record); err != nil {
		return fail(fmt.Errorf("it is damaged: %w", err))
	}
	switch {
	case record.Version < 1:
		return fail(errors.New("it has no version"))
	case record.Version > recordVersion:
		return fail(fmt.Errorf("it has version %d, this program knows up to %d: a newer program wrote it", record.Version, recordVersion))
	case !validWorkerID(record.Worker):
		return fail(fmt.Errorf("its worker ID %q is not one", record.Worker))
	case filepath.Base(folder) != record.Worker:
		return fail(fmt.Errorf("it is about worker %s, whose folder this is not", record.Worker))
	case record.Launcher.PID <= 1 || record.Launcher.StartTime == "":
		return fail(errors.New("it names no launcher"))
	case record.Network != "unix" && record.Network != "tcp":
		return fail(fmt.Errorf("its network %q is unknown", record.Network))
	}
	record.Folder = folder
	return record, nil
}

// LoadRecords reads the records of all workers below a directory. A bad record costs one error and stops no other. A
// directory that is not there holds none. The errors about one folder are of type *RecordError.
func LoadRecords(directory string) ([]Record, []error) {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{fmt.Errorf("listing the workers' folders: %w", err)}
	}
	var records []Record
	var failures []error
	for _, entry := range entries {
		if !entry.IsDir() || !validWorkerID(entry.Name()) {
			continue
		}
		record, err := LoadRecord(filepath.Join(directory, entry.Name()))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		records = append(records, record)
	}
	return records, failures
}
