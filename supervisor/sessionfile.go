package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/atomicwriter"
)

// sessionFileVersion is the version of the format below; files of another one are removed, and their hosts start
// afresh.
const sessionFileVersion = 1

// sessionFile is what a later supervisor needs to take a session over: who the host is, and how it proves it. The file
// is as private as the socket: whoever reads it could use the socket as well.
type sessionFile struct {
	Version   int               `json:"version"`
	ID        string            `json:"id"`
	Role      string            `json:"role"`
	Token     string            `json:"token"`
	PID       int               `json:"pid,omitempty"`
	StartTime string            `json:"start_time,omitempty"`
	Owners    []string          `json:"owners,omitempty"` // under which it holds and makes memory files
	Name      string            `json:"name,omitempty"`
	ComfyUI   string            `json:"comfyui,omitempty"`
	Since     time.Time         `json:"since"`
	Environ   map[string]string `json:"environ,omitempty"`
	HostFacts json.RawMessage   `json:"host_facts,omitempty"`
	HostState json.RawMessage   `json:"host_state,omitempty"`
}

// writeSessionFile replaces a session's file: after a crash there is the old content or the new one.
func writeSessionFile(folder string, session sessionFile) error {
	session.Version = sessionFileVersion
	content, err := json.Marshal(session)
	if err != nil {
		return fmt.Errorf("recording session %s: %w", session.ID, err)
	}
	sessionTurns.Do(func() { err = atomicwriter.WriteFile(filepath.Join(folder, session.ID+".json"), content, 0o600) })
	if err != nil {
		return fmt.Errorf("recording session %s: %w", session.ID, err)
	}
	return nil
}

// removeSessionFile forgets a session.
func removeSessionFile(folder, id string) error {
	var err error
	sessionTurns.Do(func() { err = os.Remove(filepath.Join(folder, id+".json")) })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forgetting session %s: %w", id, err)
	}
	return nil
}

// readSessionFiles reads all sessions. One bad file never stops the others: it is removed and reported.
func readSessionFiles(folder string) ([]sessionFile, []error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{fmt.Errorf("reading recorded sessions: %w", err)}
	}
	var sessions []sessionFile
	var problems []error
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		session, err := readSessionFile(path)
		if err != nil {
			problems = append(problems, err)
			if err := os.Remove(path); err != nil {
				problems = append(problems, fmt.Errorf("removing an unusable session record: %w", err))
			}
			continue
		}
		sessions = append(sessions, session)
	}
	return sessions, problems
}

func readSessionFile(path string) (sessionFile, error) {
	var session sessionFile
	if !strings.HasSuffix(path, ".json") {
		return session, fmt.Errorf("session record %s: left over by an interrupted write", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return session, fmt.Errorf("reading a session record: %w", err)
	}
	if err := json.Unmarshal(content, &session); err != nil {
		return session, fmt.Errorf("decoding the session record %s: %w", path, err)
	}
	if session.Version != sessionFileVersion {
		return session, fmt.Errorf("session record %s has version %d, expected %d", path, session.Version, sessionFileVersion)
	}
	if session.ID == "" || session.ID+".json" != filepath.Base(path) {
		return session, fmt.Errorf("session record %s names session %q", path, session.ID)
	}
	return session, nil
}
