package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// addLogLevel offers the level of the host's console, so that a worker's logger lets through what the host's does.
func (b *builder) addLogLevel(host HostState) {
	if host.LogLevel != nil {
		b.offer(variableHostLogLevel, strconv.Itoa(*host.LogLevel), rankHost, FromHost, "")
		return
	}
	verbose, given := host.Arguments["verbose"]
	if !given {
		return
	}
	name, _, err := consoleLevel(verbose)
	if err != nil {
		return // the flag itself is withheld, with the reason
	}
	for _, level := range logLevels {
		if level.name == name {
			b.offer(variableHostLogLevel, strconv.Itoa(level.level), rankHost, FromHost, "")
		}
	}
}

// addFlags works out the mirrored flags and offers the variable that carries them.
func (b *builder) addFlags(host HostState) []Flag {
	asked, overridden := b.value(variableHostArguments)
	b.drop(variableHostArguments)
	if decided, found := b.value(variableMirror); found && decided.value != "" && isOff(decided.value) {
		if overridden || host.Arguments != nil || host.Attention != "" {
			b.withhold(variableHostArguments, decided.source, fmt.Sprintf("%s=%s turns the mirror off", variableMirror, decided.value))
		}
		return nil
	}

	values, source := host.Arguments, FromHost
	if overridden {
		var own map[string]json.RawMessage
		if err := json.Unmarshal([]byte(asked.value), &own); err != nil || own == nil {
			b.withhold(variableHostArguments, asked.source, "not a JSON object; the host's flags go on instead")
			overridden = false
		} else {
			values, source = own, asked.source
		}
	}
	denied := b.deniedFlags()
	var flags []Flag
	for _, name := range b.candidates(values, overridden) {
		reason, note := "", ""
		value := values[name]
		switch {
		case denied.has(name):
			reason = variableNoMirror + " names it"
		case carriedFlags[name] != "":
			reason = carriedFlags[name]
		case !mirroredFlags.has(name):
			reason = "it is not a flag that is mirrored"
		case value == nil:
			reason = "this ComfyUI has no such flag"
		default:
			value, note, reason = flagValue(name, value)
		}
		if reason != "" {
			b.withholdFlag(name, source, reason)
			continue
		}
		flags = append(flags, Flag{Name: name, Value: value, Source: source, Note: note})
	}
	flags = b.deriveAllocator(flags)
	flags = b.addAttention(flags, host, values, source, denied)
	sort.Slice(flags, func(i, j int) bool { return flags[i].Name < flags[j].Name })
	b.offerFlags(flags, source, asked)
	return flags
}

// candidates are the names worth a row: all mirrored ones, those that another channel carries where they are set, and,
// in a list that somebody wrote by hand, every name.
func (b *builder) candidates(values map[string]json.RawMessage, written bool) []string {
	if values == nil {
		return nil
	}
	var names []string
	for name, value := range values {
		if name == attentionFlag {
			continue
		}
		if written || mirroredFlags.has(name) || carriedFlags[name] != "" && isSet(value) {
			names = append(names, name)
		}
	}
	if !written {
		for name := range mirroredFlags {
			if _, known := values[name]; !known {
				names = append(names, name)
			}
		}
	}
	sort.Strings(names)
	return names
}

// deniedFlags reads the operator's list of flags to withhold; dashes do as well as underscores.
func (b *builder) deniedFlags() set {
	denied := make(set)
	list, _ := b.value(variableNoMirror)
	for name := range strings.SplitSeq(list.value, ",") {
		name = strings.ReplaceAll(strings.TrimLeft(strings.TrimSpace(name), "-"), "-", "_")
		switch {
		case name == "":
		case mirroredFlags.has(name) || name == attentionFlag:
			denied[name] = struct{}{}
		default:
			b.withholdFlag(name, list.source, variableNoMirror+" names it, but it is not a flag that is mirrored")
		}
	}
	return denied
}

// flagValue is a flag's value as it crosses, or the reason why it does not.
func flagValue(name string, value json.RawMessage) (crossing json.RawMessage, note, reason string) {
	if name == "verbose" {
		_, crossing, err := consoleLevel(value)
		if err != nil {
			return nil, "", err.Error()
		}
		return crossing, "the console's level; log files stay the host's", ""
	}
	var decoded any
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber() // 0.1 and 1e3 cross as they were written
	if err := decoder.Decode(&decoded); err != nil {
		return nil, "", fmt.Sprintf("its value is not JSON: %v", err)
	}
	switch typed := decoded.(type) {
	case map[string]any:
		return nil, "", "its value is an object, and flags have none"
	case []any:
		// Sets come as lists in any order. Both sides read them back sorted.
		members := make([]string, 0, len(typed))
		for _, member := range typed {
			text, isText := member.(string)
			if !isText {
				return nil, "", "its value is a list of something else than names"
			}
			members = append(members, text)
		}
		sort.Strings(members)
		decoded = slices.Compact(members)
	}
	if name == "directml" && decoded != nil {
		note = "only where torch_directml is importable"
	}
	return encode(decoded), note, ""
}

// consoleLevel is the level of the console in the value of --verbose: a name in older versions, in newer ones a list of
// (level, file), of which the most talkative without a file counts. The second result is the flag as it crosses, without
// files.
func consoleLevel(value json.RawMessage) (string, json.RawMessage, error) {
	var name string
	if json.Unmarshal(value, &name) == nil {
		if levelIndex(name) < 0 {
			return "", nil, fmt.Errorf("%q is no log level that ComfyUI knows", name)
		}
		return name, encode(name), nil
	}
	var outputs [][]*string
	if err := json.Unmarshal(value, &outputs); err != nil {
		return "", nil, fmt.Errorf("its value is neither a level nor a list of (level, file)")
	}
	least := -1
	for _, output := range outputs {
		if len(output) != 2 || output[0] == nil {
			return "", nil, fmt.Errorf("its value is neither a level nor a list of (level, file)")
		}
		if output[1] != nil {
			continue
		}
		at := levelIndex(*output[0])
		if at < 0 {
			return "", nil, fmt.Errorf("%q is no log level that ComfyUI knows", *output[0])
		}
		if least < 0 || at < least {
			least = at
		}
	}
	if least < 0 {
		return "INFO", json.RawMessage("[]"), nil
	}
	name = logLevels[least].name
	return name, encode([][]any{{name, nil}}), nil
}

func levelIndex(name string) int {
	for i, level := range logLevels {
		if level.name == name {
			return i
		}
	}
	return -1
}

// deriveAllocator makes cuda_malloc say what PYTORCH_CUDA_ALLOC_CONF, which a pack may override, makes of the
// allocator; a worker never runs ComfyUI's cuda_malloc.py.
func (b *builder) deriveAllocator(flags []Flag) []Flag {
	configuration, found := b.value(variableAllocator)
	async := found && slices.ContainsFunc(strings.Split(configuration.value, ","), func(setting string) bool {
		return strings.EqualFold(strings.TrimSpace(setting), asyncAllocator)
	})
	for i := range flags {
		flag := &flags[i]
		if flag.Name != "cuda_malloc" && (flag.Name != "disable_cuda_malloc" || !async) {
			continue
		}
		flag.Value = encode(flag.Name == "cuda_malloc" && async)
		flag.Note = "follows " + variableAllocator
		if found {
			flag.Source = configuration.source
		}
	}
	return flags
}

// addAttention adds the host's resolved attention backend.
func (b *builder) addAttention(flags []Flag, host HostState, values map[string]json.RawMessage, source Source, denied set) []Flag {
	backend := host.Attention
	var own string
	if json.Unmarshal(values[attentionFlag], &own) == nil && own != "" {
		backend = own
	} else if source != FromHost {
		return flags // a list written by hand says all there is
	}
	if backend == "" {
		switch {
		case isTrue(values["use_sage_attention"]):
			backend = "sage"
		case isTrue(values["use_flash_attention"]):
			backend = "flash"
		default:
			return flags
		}
	}
	if mode, _ := b.value(variableAttention); strings.EqualFold(strings.TrimSpace(mode.value), "auto") {
		b.withholdFlag(attentionFlag, mode.source, variableAttention+"=auto lets the worker choose")
		return flags
	}
	switch {
	case denied.has(attentionFlag):
		b.withholdFlag(attentionFlag, source, variableNoMirror+" names it")
	case !slices.Contains(attentionBackends, backend):
		b.withholdFlag(attentionFlag, source, fmt.Sprintf("%q is no attention backend that is known here", backend))
	default:
		flag := Flag{Name: attentionFlag, Value: encode(backend), Source: source}
		if needed := attentionPackages[backend]; needed != "" {
			flag.Note = "only where " + needed + " is importable"
		}
		flags = append(flags, flag)
	}
	return flags
}

func (b *builder) offerFlags(flags []Flag, source Source, asked offer) {
	if len(flags) == 0 {
		if source != FromHost { // somebody wrote it
			b.withhold(variableHostArguments, source, "none of its flags goes on")
		}
		return
	}
	payload := make(map[string]json.RawMessage, len(flags))
	for _, flag := range flags {
		payload[flag.Name] = flag.Value
	}
	document := string(encode(payload))
	if reason := unusableReason(variableHostArguments, document); reason != "" {
		b.withhold(variableHostArguments, source, reason)
		return
	}
	rank, note := rankHost, fmt.Sprintf("%d flags", len(flags))
	if source != FromHost {
		rank, note = asked.rank, joinNotes(asked.note, note)
	}
	b.offer(variableHostArguments, document, rank, source, note)
}

// isSet reports whether a flag has another value than those that mean "not given".
func isSet(value json.RawMessage) bool {
	switch string(value) {
	case "null", "false", "0", "0.0", "[]", `""`:
		return false
	}
	return true
}

// encode writes plain values as JSON. They came out of JSON, so that it can not fail.
func encode(value any) json.RawMessage {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimRight(buffer.Bytes(), "\n")
}
