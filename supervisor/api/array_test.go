package api

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
)

// inlineResult is a result whose only array is in the JSON itself.
func inlineResult(kind, dtype string, shape []int, data []byte) *Result {
	content, err := json.Marshal([]any{map[string]any{"$array": map[string]any{
		"kind": kind, "dtype": dtype, "shape": shape, "file": nil, "offset": 0, "length": len(data), "base64": base64.StdEncoding.EncodeToString(data),
	}}})
	if err != nil {
		panic(err)
	}
	return &Result{Value: content}
}

func float32s(values ...float32) []byte {
	var data []byte
	for _, value := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value))
	}
	return data
}

func TestAnInlineArrayIsRead(t *testing.T) {
	arrays, err := inlineResult("numpy", "<f4", []int{2, 1}, float32s(1.5, -2)).Arrays()
	if err != nil || len(arrays) != 1 {
		t.Fatalf("got %v, %v", arrays, err)
	}
	values, err := arrays[0].Float32()
	if err != nil || len(values) != 2 || values[0] != 1.5 || values[1] != -2 {
		t.Errorf("got %v, %v", values, err)
	}
}

func TestAnArrayInAMemoryFileIsReadAndGivenBackOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory file")
	if err := os.WriteFile(path, append(make([]byte, 64), float32s(3, 4)...), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	files := newReceivedFiles()
	var settled []FileCount
	files.release = func(counts []FileCount) { settled = append(settled, counts...) }
	reference := wire.File{ID: "owner-1", Path: path, Size: info.Size()}
	files.receive([]wire.File{reference})
	files.receive([]wire.File{reference})
	first, second := files.take([]wire.File{reference}), files.take([]wire.File{reference})
	result := &Result{files: first.files, release: first.release,
		Value: json.RawMessage(`{"b":{"$array":{"kind":"torch","dtype":"float32","shape":[2],"file":0,"offset":64,"length":8}},"a":[1]}`)}
	arrays, err := result.Arrays()
	if err != nil || len(arrays) != 1 || !bytes.Equal(arrays[0].Data, float32s(3, 4)) {
		t.Errorf("got %v, %v", arrays, err)
	}
	result.Close()
	result.Close()
	if len(settled) != 0 {
		t.Errorf("given back while another result refers to it: %v", settled)
	}
	second.release()
	if len(settled) != 1 || settled[0] != (FileCount{ID: reference.ID, Count: 2}) {
		t.Errorf("got %v", settled)
	}
	if held := files.holds(); len(held) != 0 {
		t.Errorf("still held: %v", held)
	}
}

func TestArraysThatCanNotBeAreRefused(t *testing.T) {
	for name, result := range map[string]*Result{
		"too few bytes":  inlineResult("numpy", "<f4", []int{3}, float32s(1, 2)),
		"negative shape": inlineResult("numpy", "<f4", []int{-1, 2}, nil),
		"huge shape":     inlineResult("numpy", "<f4", []int{1 << 40, 1 << 40}, nil),
		"unknown dtype":  inlineResult("torch", "quint8", []int{1}, []byte{1}),
		"no file":        {Value: json.RawMessage(`{"$array":{"kind":"numpy","dtype":"<f4","shape":[1],"file":3,"offset":0,"length":4}}`)},
		"no bytes":       {Value: json.RawMessage(`{"$array":{"kind":"numpy","dtype":"<f4","shape":[1]}}`)},
		"not an object":  {Value: json.RawMessage(`{"$array":7}`)},
	} {
		if arrays, err := result.Arrays(); err == nil {
			t.Errorf("%s: got %v", name, arrays)
		}
	}
}

func TestEveryDTypeOfNumbersIsConverted(t *testing.T) {
	for _, test := range []struct {
		kind, dtype string
		data        []byte
		value       float32
	}{
		{"numpy", "|b1", []byte{1}, 1},
		{"numpy", "|u1", []byte{200}, 200},
		{"numpy", "|i1", []byte{0xff}, -1},
		{"numpy", "<u2", []byte{1, 2}, 513},
		{"numpy", ">u2", []byte{1, 2}, 258},
		{"numpy", "<i2", []byte{0xfe, 0xff}, -2},
		{"numpy", "<i4", []byte{0xfd, 0xff, 0xff, 0xff}, -3},
		{"numpy", "<u4", []byte{4, 0, 0, 0}, 4},
		{"numpy", "<i8", []byte{0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -5},
		{"numpy", "<u8", []byte{6, 0, 0, 0, 0, 0, 0, 0}, 6},
		{"numpy", "<f2", []byte{0x00, 0xc5}, -5},
		{"torch", "float16", []byte{0x01, 0x00}, 1.0 / (1 << 24)},
		{"torch", "float16", []byte{0xff, 0x7b}, 65504},
		{"torch", "bfloat16", []byte{0x40, 0x40}, 3},
		{"torch", "float64", []byte{0, 0, 0, 0, 0, 0, 0x1c, 0x40}, 7},
	} {
		array := Array{Kind: test.kind, DType: test.dtype, Shape: []int{1}, Data: test.data}
		values, err := array.Float32()
		if err != nil || len(values) != 1 || values[0] != test.value {
			t.Errorf("%s %s: got %v, %v, expected %v", test.kind, test.dtype, values, err, test.value)
		}
	}
	if values, err := (&Array{Kind: "torch", DType: "float16", Data: []byte{0x00, 0x7c, 0x00, 0xfc, 0x01, 0x7e}}).Float32(); err != nil ||
		!math.IsInf(float64(values[0]), 1) || !math.IsInf(float64(values[1]), -1) || !math.IsNaN(float64(values[2])) {
		t.Errorf("infinities and nan: %v, %v", values, err)
	}
	for _, dtype := range []string{"<c8", "<U4", "float8_e4m3fn"} {
		kind := "numpy"
		if strings.HasPrefix(dtype, "float8") {
			kind = "torch"
		}
		if _, err := (&Array{Kind: kind, DType: dtype, Data: make([]byte, 16)}).Float32(); err == nil {
			t.Errorf("%s was taken for numbers", dtype)
		}
	}
}

func TestAnNPYFileHasItsHeaderAligned(t *testing.T) {
	for _, test := range []struct {
		array Array
		descr string
		data  int
	}{
		{Array{Kind: "numpy", DType: "<f4", Shape: []int{2, 3}, Data: make([]byte, 24)}, "<f4", 24},
		{Array{Kind: "torch", DType: "bfloat16", Shape: []int{4}, Data: make([]byte, 8)}, "<f4", 16},
		{Array{Kind: "torch", DType: "int64", Shape: []int{}, Data: make([]byte, 8)}, "<i8", 8},
	} {
		file, err := test.array.NPY()
		if err != nil {
			t.Errorf("%+v: %v", test.array, err)
			continue
		}
		header := int(binary.LittleEndian.Uint16(file[8:]))
		text := string(file[10 : 10+header])
		if string(file[:6]) != "\x93NUMPY" || (10+header)%64 != 0 || !strings.HasSuffix(text, "\n") ||
			!strings.Contains(text, fmt.Sprintf("'descr': '%s'", test.descr)) || len(file) != 10+header+test.data {
			t.Errorf("got %q and %d bytes", text, len(file)-10-header)
		}
	}
	if _, err := (&Array{Kind: "torch", DType: "float8_e5m2"}).NPY(); err == nil {
		t.Error("a dtype that numpy lacks was written")
	}
}

func TestPicturesAreFoundInArraysOfTheirShapes(t *testing.T) {
	pixel := float32s(1, 0.5, -3)
	batch := Array{Kind: "torch", DType: "float32", Shape: []int{2, 1, 1, 3}, Data: append(append([]byte{}, pixel...), float32s(2, 0, float32(math.NaN()))...)}
	pictures, err := batch.Images()
	if err != nil || len(pictures) != 2 {
		t.Fatalf("got %v, %v", pictures, err)
	}
	if got := pictures[0].At(0, 0); got != (color.NRGBA{R: 255, G: 128, B: 0, A: 255}) {
		t.Errorf("got %v", got)
	}
	if got := pictures[1].At(0, 0); got != (color.NRGBA{R: 255, G: 0, B: 0, A: 255}) {
		t.Errorf("got %v", got)
	}
	bytesImage := Array{Kind: "numpy", DType: "|u1", Shape: []int{1, 2, 4}, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}}
	if pictures, err := bytesImage.Images(); err != nil || pictures[0].At(1, 0) != (color.NRGBA{R: 5, G: 6, B: 7, A: 8}) {
		t.Errorf("got %v, %v", pictures, err)
	}
	mask := Array{Kind: "numpy", DType: "<f4", Shape: []int{2, 2}, Data: float32s(0, 1, 0.2, 0.4)}
	if pictures, err := mask.Images(); err != nil || pictures[0].At(1, 0) != (color.Gray{Y: 255}) || pictures[0].Bounds().Dx() != 2 {
		t.Errorf("got %v, %v", pictures, err)
	}
	for _, array := range []Array{
		{Kind: "numpy", DType: "<f4", Shape: []int{4}, Data: float32s(1, 2, 3, 4)},
		{Kind: "numpy", DType: "<f4", Shape: []int{1, 1, 1, 2}, Data: float32s(1, 2)},
		{Kind: "numpy", DType: "<i8", Shape: []int{1, 1}, Data: make([]byte, 8)},
		{Kind: "numpy", DType: "<f4", Shape: []int{0, 0, 3}},
	} {
		if pictures, err := array.Images(); err == nil {
			t.Errorf("%v was taken for pictures: %v", array.Shape, pictures)
		}
	}
}
