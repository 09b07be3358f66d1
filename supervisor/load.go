package supervisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// loadParams is the first request to a worker: what it is and which pack it imports.
type loadParams struct {
	Session     string `json:"session"`
	Environment string `json:"environment"`
	// EnvironmentID names the environment's content: opaque values open only where it is the same.
	EnvironmentID string          `json:"environment_root_id"`
	Generation    uint64          `json:"generation"`
	Worker        string          `json:"worker"`
	Pack          loadPack        `json:"pack"`
	ComfyUI       string          `json:"comfyui"`
	Memory        api.MemoryRules `json:"memory"`
	Options       loadOptions     `json:"options"`
	// Folders is the host's folder registry, in the words of its adapter.
	Folders json.RawMessage `json:"folders,omitempty"`
}

type loadPack struct {
	Directory string `json:"directory"`
	Nodes     string `json:"nodes"` // the package to import
	Name      string `json:"name"`
	// UniqueName is the module name that nothing else has.
	UniqueName string `json:"unique_name"`
}

type loadOptions struct {
	Inference string `json:"inference"`
}

// loadResult is what a worker says once its pack is imported.
type loadResult struct {
	Nodes        json.RawMessage   `json:"nodes"`
	DisplayNames json.RawMessage   `json:"display_names"`
	PID          int               `json:"pid"`
	Python       string            `json:"python"`
	Platform     string            `json:"platform"`
	Packages     map[string]string `json:"packages"`
	// Loaded is false when a worker that was asked for its nodes has not imported its pack yet.
	Loaded *bool `json:"loaded"`
	// NodesInBody: the contracts were too long for the header and are the body.
	NodesInBody bool `json:"nodes_in_body"`
}

// environmentID names the content of an environment.
func environmentID(environment envbuild.Environment) string {
	return environment.Name + "/" + environment.Revision
}

func (d *Daemon) loadParams(w *worker, environment envbuild.Environment) loadParams {
	s := w.place.session
	comfyui := s.comfyui
	if comfyui == "" {
		comfyui = environment.ComfyUI
	}
	d.mu.Lock()
	folders := s.sessionFolders()
	d.mu.Unlock()
	return loadParams{
		Folders:       folders,
		Session:       s.id,
		Environment:   w.place.environment,
		EnvironmentID: environmentID(environment),
		Generation:    w.generation,
		Worker:        w.id,
		Pack: loadPack{
			Directory:  environment.PackDirectory,
			Nodes:      environment.NodesDirectory,
			Name:       filepath.Base(environment.PackDirectory),
			UniqueName: packModule(w.place.environment),
		},
		ComfyUI: comfyui,
		Memory:  d.memoryRules(),
		Options: loadOptions{Inference: w.limits.inference},
	}
}

// packModule is the name a pack is imported under: the same in every generation, so that what one worker of an
// environment pickled opens in the next, and like no other module's.
func packModule(environment string) string {
	return "comfy_supervisor_pack_" + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, environment)
}

// decodeLoaded reads a worker's answer to load or nodes.
func (d *Daemon) decodeLoaded(w *worker, reply *wire.Message, body []byte) (loadResult, error) {
	var loaded loadResult
	shipment, err := d.files.Receive(w.party, reply.Files)
	if err != nil {
		return loaded, err
	}
	defer shipment.Discard()
	if err := json.Unmarshal(reply.Result, &loaded); err != nil {
		return loaded, err
	}
	if !loaded.NodesInBody {
		return loaded, nil
	}
	if place := reply.BodyFile; place != nil {
		files := shipment.Files()
		if place.Index < 0 || place.Index >= len(files) {
			return loaded, fmt.Errorf("the body is in file %d of %d", place.Index, len(files))
		}
		if body, err = readShipped(files[place.Index], place.Offset, place.Length); err != nil {
			return loaded, err
		}
	}
	content, err := api.EnvelopeJSON(body)
	if err == nil {
		err = json.Unmarshal(content, &loaded)
	}
	if err != nil {
		return loaded, fmt.Errorf("decoding the contracts: %w", err)
	}
	return loaded, nil
}

// maxContractBytes bounds what is read of a pack's contracts.
const maxContractBytes = 256 << 20

// readShipped reads a part of a memory file that the Holder keeps open.
func readShipped(file wire.File, offset, length int64) ([]byte, error) {
	if offset < 0 || length < 0 || length > maxContractBytes || length > file.Size || offset > file.Size-length {
		return nil, fmt.Errorf("%d bytes from %d are not in a file of %d bytes", length, offset, file.Size)
	}
	path := file.Path
	if path == "" {
		path = fmt.Sprintf("/proc/%d/fd/%d", file.PID, file.FD)
	}
	reader, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a memory file: %w", err)
	}
	defer reader.Close()
	content := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(reader, offset, length), content); err != nil {
		return nil, fmt.Errorf("reading a memory file: %w", err)
	}
	return content, nil
}

// nodeNames lists the names in contracts, for status.
func nodeNames(contracts json.RawMessage) []string {
	var named []struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(contracts, &named) != nil {
		return nil
	}
	names := make([]string, 0, len(named))
	for _, node := range named {
		if node.Name != "" {
			names = append(names, node.Name)
		}
	}
	return names
}
