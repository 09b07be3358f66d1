package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ProtocolVersion is the version of frames, methods and values. Both sides state it in their hello.
const ProtocolVersion = 1

// Lanes name the thread of the receiver that serves a request.
const (
	LaneReader = "reader" // answered where frames are read; runs no pack code
	LaneMain   = "main"   // a worker's main thread: node functions
	LaneSide   = "side"   // a worker's side thread: input types, validation, routes
	LaneCaller = "caller" // a host's thread that waits in Session.call
	// LaneMemory is the thread that may touch a process's models: a worker's main thread between calls or while it waits
	// for a lease, a host's executor at its next moment for it.
	LaneMemory = "memory"
)

// Message is a decoded header: a request (Method and ID), a notification (Method alone) or a reply (ID alone).
// Unknown fields are ignored.
type Message struct {
	JSONRPC string `json:"jsonrpc"`
	// ID numbers requests per sender and link, from 1; a reply repeats it.
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// Call is the ID, on this link, of the call that a notification or request belongs to.
	Call uint64 `json:"call,omitempty"`
	// Generation counts a worker's replacements; what carries another one than the receiver's is dropped.
	Generation uint64 `json:"generation,omitempty"`
	// DeadlineMilliseconds is the time left for the request when it was sent.
	DeadlineMilliseconds int64  `json:"deadline_ms,omitempty"`
	Lane                 string `json:"lane,omitempty"`
	// Files are the memory files that the body refers to by index.
	Files []File `json:"files,omitempty"`
	// BodyFile says where the body is when it does not fit into a frame.
	BodyFile *BodyFile `json:"body_file,omitempty"`
}

// File is a reference to a memory file as its sender knows it.
type File struct {
	// ID is unique on the machine and names one content: a pooled file gets a new one each time it is filled.
	ID string `json:"id"`
	// PID and FD locate the open file, as /proc/PID/fd/FD. Receivers in the supervisor trust the peer's identity and
	// not this PID.
	PID int `json:"pid,omitempty"`
	FD  int `json:"fd"`
	// Path locates it where there are no memory files.
	Path  string `json:"path,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
	Size  int64  `json:"size"` // bytes
}

// BodyFile locates a body inside Files[Index].
type BodyFile struct {
	Index  int   `json:"index"`
	Offset int64 `json:"offset"` // bytes
	Length int64 `json:"length"` // bytes
}

// Kinds of errors, in Error.Data.Kind.
const (
	KindNodeRaised         = "node_raised"         // the node's own exception
	KindCancelled          = "cancelled"           // the caller or the host cancelled the call
	KindWorkerDied         = "worker_died"         // the process ended in mid-call
	KindStartFailed        = "start_failed"        // the worker did not come up
	KindPackFailed         = "pack_failed"         // the pack's import raised
	KindUnknownEnvironment = "unknown_environment" // no such environment
	KindAmbiguous          = "ambiguous"           // the name fits several environments
	KindNotBuilt           = "not_built"           // the environment is known, but not built for this stack
	KindUnknownNode        = "unknown_node"
	KindUnknownInput       = "unknown_input"
	KindValue              = "value"  // a value that can not cross
	KindQuota              = "quota"  // the memory-file quota is used up
	KindSilent             = "silent" // the call's silence or deadline limit passed
	KindStopped            = "stopped"
	KindBadRequest         = "bad_request"
	KindUnknownMethod      = "unknown_method"
	KindWrongGeneration    = "wrong_generation"
	KindInternal           = "internal"
)

// Error is a JSON-RPC error object. Code is -32601 for an unknown method, -32602 for bad parameters, else -32000; the
// meaning is in Data.Kind.
type Error struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Data    ErrorData `json:"data"`
}

// ErrorData says what happened in words a program can use.
type ErrorData struct {
	Kind string `json:"kind"`
	// Remedy is what the person can do next, one sentence.
	Remedy      string `json:"remedy,omitempty"`
	Environment string `json:"environment,omitempty"`
	Node        string `json:"node,omitempty"`
	Generation  uint64 `json:"generation,omitempty"`
	// Exception describes a Python exception, for kinds node_raised and pack_failed. Opaque to Go but for its strings.
	Exception *Exception `json:"exception,omitempty"`
	// ExitCode and Signal tell how a process ended; Stderr holds its last lines.
	ExitCode *int     `json:"exit_code,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	Stderr   []string `json:"stderr,omitempty"`
	// Nearest is the existing name closest to an unknown one.
	Nearest string `json:"nearest,omitempty"`
}

// Exception is a Python exception as text; its arguments, where they are plain values, are the frame's body.
type Exception struct {
	Module    string           `json:"module"`
	Qualname  string           `json:"qualname"`
	Bases     []ExceptionBase  `json:"bases,omitempty"` // the rest of the method resolution order
	Message   string           `json:"message"`
	Traceback string           `json:"traceback,omitempty"`
	Frames    []TracebackFrame `json:"frames,omitempty"`
	ErrorCode string           `json:"error_code,omitempty"`
}

// ExceptionBase names one class of an exception's method resolution order.
type ExceptionBase struct {
	Module   string `json:"module"`
	Qualname string `json:"qualname"`
}

// TracebackFrame is one level of a Python traceback.
type TracebackFrame struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`
	Text     string `json:"text,omitempty"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Data.Remedy == "" {
		return e.Message
	}
	return e.Message + " (" + e.Data.Remedy + ")"
}

// NewError makes an error of a kind; the code follows from it.
func NewError(kind, message string) *Error {
	code := -32000
	switch kind {
	case KindUnknownMethod:
		code = -32601
	case KindBadRequest:
		code = -32602
	}
	return &Error{Code: code, Message: message, Data: ErrorData{Kind: kind}}
}

// Errorf makes an error of a kind with a formatted message.
func Errorf(kind, format string, arguments ...any) *Error {
	return NewError(kind, fmt.Sprintf(format, arguments...))
}

// AsError returns err as a wire error: itself when it already is one, else one of kind internal.
func AsError(err error) *Error {
	var wireError *Error
	if errors.As(err, &wireError) {
		return wireError
	}
	return NewError(KindInternal, err.Error())
}

// DecodeMessage decodes a header.
func DecodeMessage(header []byte) (*Message, error) {
	if message := decodeOrdinary(header); message != nil {
		return message, nil
	}
	return decodeAny(header)
}

// Parts of the headers that every call has, as our Pythons write them.
const (
	ordinaryStart = `{"jsonrpc":"2.0","id":`
	emptyResult   = `,"result":{}}`
	callParams    = `,"method":"call","params":`
)

// decodeOrdinary decodes a call without further fields and a reply with an empty result in a tenth of the time that
// reflection takes; nil for everything else, which may still be a message. The params are a part of the header.
func decodeOrdinary(header []byte) *Message {
	rest, ok := bytes.CutPrefix(header, []byte(ordinaryStart))
	if !ok {
		return nil
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 18 || rest[0] == '0' { // 19 may be too many for an ID
		return nil
	}
	var id uint64
	for _, digit := range rest[:digits] {
		id = id*10 + uint64(digit-'0')
	}
	rest = rest[digits:]
	if string(rest) == emptyResult {
		return &Message{JSONRPC: "2.0", ID: id, Result: json.RawMessage("{}")}
	}
	params, isCall := bytes.CutPrefix(rest, []byte(callParams))
	params, ended := bytes.CutSuffix(params, []byte("}"))
	if !isCall || !ended || !json.Valid(params) {
		return nil
	}
	return &Message{JSONRPC: "2.0", ID: id, Method: "call", Params: params}
}

func decodeAny(header []byte) (*Message, error) {
	message := new(Message)
	if err := json.Unmarshal(header, message); err != nil {
		return nil, fmt.Errorf("decoding a frame's header: %w", err)
	}
	if message.JSONRPC != "2.0" {
		return nil, fmt.Errorf("decoding a frame's header: jsonrpc is %q, expected \"2.0\"", message.JSONRPC)
	}
	if message.Method == "" && message.ID == 0 {
		return nil, errors.New("decoding a frame's header: neither a method nor an id")
	}
	return message, nil
}

// EncodeMessage makes a frame of a message and a body.
func EncodeMessage(message *Message, body []byte) (Frame, error) {
	message.JSONRPC = "2.0"
	header, err := json.Marshal(message)
	if err != nil {
		return Frame{}, fmt.Errorf("encoding the header of %q: %w", message.Method, err)
	}
	if err := CheckSize(len(header), len(body)); err != nil {
		return Frame{}, fmt.Errorf("encoding %q: %w", message.Method, err)
	}
	return Frame{Header: header, Body: body}, nil
}
