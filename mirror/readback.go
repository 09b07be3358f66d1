package mirror

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sort"
)

// ReadBack are the values of mirrored flags as one side read them off comfy.cli_args.args after everything was
// applied, as JSON: enum members as their values, sets as sorted lists. An echo of what was sent would prove nothing.
type ReadBack map[string]json.RawMessage

// Difference is one thing in which host and worker differ.
type Difference struct {
	Name   string `json:"name"`
	Host   string `json:"host"`   // "" where the host has no such thing
	Worker string `json:"worker"` // "" where the worker has no such thing
	// Blocks says that tensors can not cross between the two.
	Blocks bool `json:"blocks,omitempty"`
}

// Hash is a short fingerprint of values, the same for equal values however their JSON was spaced, escaped or ordered;
// numbers count as they were written, 1 and 1.0 are two values. Both sides' values are hashed here, so that no two
// encoders need to agree on every byte.
func Hash(values ReadBack) (string, error) {
	pairs := make([][2]any, 0, len(values))
	for _, name := range sortedNames(values) {
		value, err := canonical(values[name])
		if err != nil {
			return "", fmt.Errorf("hashing the flag %s as it was read back: %w", name, err)
		}
		pairs = append(pairs, [2]any{name, value})
	}
	digest := sha256.Sum256(encode(pairs))
	return hex.EncodeToString(digest[:])[:12], nil
}

// Compare lists the flags whose values differ, by name. Both sides are held against the names in mirrored, so that
// what was withheld on purpose is no difference. A value that is not JSON differs from everything.
func Compare(mirrored []Flag, host, worker ReadBack) []Difference {
	var differences []Difference
	for _, flag := range mirrored {
		hostText, hostErr := canonicalText(host[flag.Name])
		workerText, workerErr := canonicalText(worker[flag.Name])
		if hostErr != nil || workerErr != nil || hostText != workerText {
			differences = append(differences, Difference{Name: flag.Name, Host: hostText, Worker: workerText})
		}
	}
	sort.Slice(differences, func(i, j int) bool { return differences[i].Name < differences[j].Name })
	return differences
}

// Expected are the values that a worker should read back when it applied every flag of the plan, but for the
// attention backend, which is no attribute.
func (r Reflection) Expected() ReadBack {
	expected := make(ReadBack, len(r.Flags))
	for _, flag := range r.Flags {
		if flag.Name != attentionFlag {
			expected[flag.Name] = flag.Value
		}
	}
	return expected
}

// Skew lists the packages and versions in which host and worker differ. Skew is reported and refuses nothing; it
// blocks only where one side has torch and the other has not, so that no tensor can be rebuilt.
func Skew(host, worker map[string]string) []Difference {
	names := newSet(sortedNames(host)...)
	for name := range worker {
		names[name] = struct{}{}
	}
	var differences []Difference
	for _, name := range sortedNames(names) {
		if host[name] == worker[name] {
			continue
		}
		differences = append(differences, Difference{
			Name: name, Host: host[name], Worker: worker[name],
			Blocks: name == "torch" && (host[name] == "" || worker[name] == ""),
		})
	}
	return differences
}

func canonical(value json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	return encode(decoded), nil
}

// canonicalText is canonical as text, "" for a value that is absent, and the text as it came where it is not JSON.
func canonicalText(value json.RawMessage) (string, error) {
	if value == nil {
		return "", nil
	}
	text, err := canonical(value)
	if err != nil {
		return string(value), err
	}
	return string(text), nil
}
