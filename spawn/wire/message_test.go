package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMessageSurvivesItsEncoding(t *testing.T) {
	code := 3
	for _, message := range []Message{
		{ID: 1, Method: "call", Params: Params(map[string]any{"a": 1}), Lane: LaneMain, DeadlineMilliseconds: 5,
			Files: []File{{ID: "a-1", PID: 1, FD: 2, Inode: 3, Size: 4}}, BodyFile: &BodyFile{Index: 0, Offset: 1, Length: 2}},
		{Method: "progress", Call: 9, Generation: 2},
		{ID: 1<<64 - 1, Result: json.RawMessage(`{"x":"\ud800"}`)},
		{ID: 2, Error: &Error{Code: -32000, Message: "m", Data: ErrorData{Kind: KindNodeRaised, ExitCode: &code, Stderr: []string{"l"},
			Exception: &Exception{Module: "builtins", Qualname: "ValueError", Bases: []ExceptionBase{{"builtins", "Exception"}},
				Frames: []TracebackFrame{{File: "f", Line: 1, Function: "g"}}}}}},
	} {
		frame, err := EncodeMessage(&message, []byte("body"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeMessage(frame.Header)
		if err != nil {
			t.Fatal(err)
		}
		if difference := cmp.Diff(&message, got); difference != "" {
			t.Error(difference)
		}
	}
}

func TestHeadersThatAreNoMessagesAreRefused(t *testing.T) {
	for _, header := range []string{
		``, `null`, `1`, `[]`, `"x"`, `{}`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"1.0","id":1}`, `{"id":1,"method":"a"}`,
		`{"jsonrpc":"2.0","id":-1,"method":"a"}`, `{"jsonrpc":"2.0","id":"1","method":"a"}`, `{"jsonrpc":"2.0","id":1,"method":2}`,
		`{"jsonrpc":"2.0","id":1,"method":"a"} x`, `{"jsonrpc":"2.0","id":1,"files":{}}`, `{"jsonrpc":"2.0","id":1.5}`,
		`{"jsonrpc":"2.0","id":18446744073709551616}`, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"", strings.Repeat("[", 100_000),
	} {
		if message, err := DecodeMessage([]byte(header)); err == nil {
			t.Errorf("%.60q was taken for %+v", header, message)
		}
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	message, err := DecodeMessage([]byte(`{"jsonrpc":"2.0","id":1,"method":"a","later":{"x":1},"params":{"b":2}}`))
	if err != nil || message.Method != "a" || string(message.Params) != `{"b":2}` {
		t.Errorf("%+v, %v", message, err)
	}
}

func TestAnythingBecomesAWireError(t *testing.T) {
	original := Errorf(KindQuota, "%d bytes", 5)
	original.Data.Remedy = "send less"
	if got := AsError(fmt.Errorf("sending: %w", original)); got != original {
		t.Errorf("%+v", got)
	}
	if got := original.Error(); got != "5 bytes (send less)" {
		t.Errorf("%q", got)
	}
	if got := AsError(errors.New("x")); got.Data.Kind != KindInternal || got.Message != "x" || got.Error() != "x" {
		t.Errorf("%+v", got)
	}
	if NewError(KindUnknownMethod, "").Code != -32601 || NewError(KindBadRequest, "").Code != -32602 || NewError(KindQuota, "").Code != -32000 {
		t.Error("the codes are not JSON-RPC's")
	}
}

func TestAMessageBeyondTheLimitsIsNotEncoded(t *testing.T) {
	message := &Message{Method: "call", Params: Params(strings.Repeat("x", MaxHeaderBytes))}
	if _, err := EncodeMessage(message, nil); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("error %v", err)
	}
	if _, err := EncodeMessage(&Message{Method: "call"}, make([]byte, MaxFrameBytes)); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("error %v", err)
	}
	if _, err := EncodeMessage(&Message{Method: "call", Params: json.RawMessage("{")}, nil); err == nil {
		t.Error("parameters that are no JSON were encoded")
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, header := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"call","params":{"node":"x"},"lane":"main"}`,
		`{"jsonrpc":"2.0","id":2,"result":{}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"m","data":{"kind":"value","exit_code":1}}}`,
		`{"jsonrpc":"2.0","method":"progress","call":7,"params":[1,null,"\ud800"]}`,
		`{"jsonrpc":"2.0","id":3,"result":null,"files":[{"id":"a-1","fd":3,"size":9}],"body_file":{"index":0,"offset":-1,"length":5}}`,
		`{"jsonrpc":"2.0","id":1e3,"method":"a"}`, `{}`, `[`, "\xff", `{"jsonrpc":"2.0","JSONRPC":"1","id":1}`,
	} {
		f.Add([]byte(header))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		message, err := DecodeMessage(header)
		if err != nil {
			return
		}
		if message.Method == "" && message.ID == 0 {
			t.Fatal("neither a method nor an ID")
		}
		frame, err := EncodeMessage(message, nil)
		if errors.Is(err, ErrFrameTooLarge) {
			return // indentation may be gone, escapes may have come
		}
		if err != nil {
			t.Fatalf("%q was decoded and can not be encoded: %v", header, err)
		}
		again, err := DecodeMessage(frame.Header)
		if err != nil {
			t.Fatalf("%q became %q: %v", header, frame.Header, err)
		}
		twice, err := EncodeMessage(again, nil)
		if err != nil || string(twice.Header) != string(frame.Header) {
			t.Fatalf("%q became %q and then %q", header, frame.Header, twice.Header)
		}
	})
}

// FuzzOrdinaryMessages holds what is decoded the short way against the long way.
func FuzzOrdinaryMessages(f *testing.F) {
	for _, header := range []string{
		`{"jsonrpc":"2.0","id":17,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"call","params":{"environment":"a-nodes","node":"A","instance":"}"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"call","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"call","params":{},"files":[{"id":"a-1","fd":3,"size":5}]}`,
		`{"jsonrpc":"2.0","id":1,"method":"call","params":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"call","params":`,
		`{"jsonrpc":"2.0","id":1,"method":"call","params":}`,
		`{"jsonrpc":"2.0","id":1,"method":"call","params": null }`,
		`{"jsonrpc":"2.0","id":0,"result":{}}`,
		`{"jsonrpc":"2.0","id":01,"result":{}}`,
		`{"jsonrpc":"2.0","id":18446744073709551616,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}} `,
	} {
		f.Add([]byte(header))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		short := decodeOrdinary(header)
		if short == nil {
			return
		}
		long, err := decodeAny(header)
		if err != nil {
			t.Fatalf("%q is not a message: %v", header, err)
		}
		short.Params, long.Params = bytes.TrimSpace(short.Params), bytes.TrimSpace(long.Params)
		if difference := cmp.Diff(long, short); difference != "" {
			t.Fatalf("%q:\n%s", header, difference)
		}
	})
}

func BenchmarkMessage(b *testing.B) {
	message := Message{ID: 12, Method: "call", Lane: LaneMain, Params: Params(map[string]any{
		"node": "Passthrough", "instance": "0123456789abcdef", "context": map[string]any{"prompt_id": "p", "node_id": "12"},
	})}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := EncodeMessage(&message, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	frame, err := EncodeMessage(&message, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeMessage(frame.Header); err != nil {
				b.Fatal(err)
			}
		}
	})
}
