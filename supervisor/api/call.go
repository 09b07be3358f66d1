package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// Call is one call of a node, with inputs and result as JSON.
type Call struct {
	Environment string
	Node        string
	Function    string // empty: the node's own
	// Inputs are encoded as one JSON object; json.RawMessage values go as they are.
	Inputs map[string]any
	// Silence replaces the limit after which a call without progress is given up; 0: the default.
	Silence time.Duration
	// Deadline limits the whole call; 0: none.
	Deadline time.Duration
	Context  json.RawMessage
	// Progress hears of the call's progress, on the reading goroutine: it must return soon. May be nil.
	Progress func(Progress)
}

// Result is what a node's function returned. Close it, so that its memory files can be used again.
type Result struct {
	CallResult
	// Value is the JSON form of what the function returned; arrays are read with Arrays.
	Value   json.RawMessage
	Elapsed time.Duration

	files   []*receivedFile
	release func()
}

// Call runs a node's function in a worker of the session and waits for its value. When the context ends the call is
// cancelled. Errors are *wire.Error: the node's own exception has kind node_raised.
func (c *Client) Call(ctx context.Context, call Call) (*Result, error) {
	inputs := call.Inputs
	if inputs == nil {
		inputs = map[string]any{}
	}
	body, err := json.Marshal(inputs)
	if err != nil {
		return nil, fmt.Errorf("encoding the inputs of %s: %w", call.Node, err)
	}
	request := &wire.Message{
		Method: MethodCall,
		Params: wire.Params(CallParams{
			Environment:         call.Environment,
			Node:                call.Node,
			Function:            call.Function,
			Encoding:            EncodingJSON,
			Context:             call.Context,
			SilenceMilliseconds: call.Silence.Milliseconds(),
		}),
		DeadlineMilliseconds: call.Deadline.Milliseconds(),
	}
	begin := time.Now()
	reply, answer, err := c.exchange(ctx, request, body, func(message *wire.Message) {
		var progress Progress
		if call.Progress != nil && message.Method == NotificationProgress && json.Unmarshal(message.Params, &progress) == nil {
			call.Progress(progress)
		}
	})
	if err != nil {
		if errors.Is(err, wire.ErrFrameTooLarge) {
			return nil, fmt.Errorf("calling %s in %s: inputs of %d bytes as JSON; at most about %d bytes fit: %w",
				call.Node, call.Environment, len(body), wire.MaxFrameBytes, err)
		}
		return nil, err
	}
	held := c.files.take(reply.Files)
	result := &Result{Value: answer, Elapsed: time.Since(begin), files: held.files, release: held.release}
	if err := json.Unmarshal(reply.Result, &result.CallResult); err != nil {
		held.release()
		return nil, fmt.Errorf("decoding the result of %s: %w", call.Node, err)
	}
	if reply.BodyFile != nil {
		result.Value, err = result.read(reply.BodyFile.Index, reply.BodyFile.Offset, reply.BodyFile.Length)
		if err != nil {
			held.release()
			return nil, fmt.Errorf("reading the result of %s: %w", call.Node, err)
		}
	}
	if !json.Valid(result.Value) {
		held.release()
		return nil, fmt.Errorf("the result of %s in %s is not JSON", call.Node, call.Environment)
	}
	return result, nil
}

// Close gives the result's memory files back. Values that were read stay valid.
func (r *Result) Close() {
	if r.release != nil {
		r.release()
		r.release = nil
		r.files = nil
	}
}

// Decode decodes the value.
func (r *Result) Decode(value any) error {
	if err := json.Unmarshal(r.Value, value); err != nil {
		return fmt.Errorf("decoding what %s returned: %w", r.Environment, err)
	}
	return nil
}

// read returns bytes of one of the result's memory files.
func (r *Result) read(index int, offset, length int64) ([]byte, error) {
	if index < 0 || index >= len(r.files) {
		return nil, fmt.Errorf("memory file %d of %d", index, len(r.files))
	}
	return r.files[index].read(offset, length)
}
