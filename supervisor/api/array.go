package api

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Array is an array or tensor of a result, in C order.
type Array struct {
	Kind  string // numpy or torch
	DType string // "<f4", "|u1" ... of numpy, "float32", "bfloat16" ... of torch
	Shape []int
	Data  []byte
}

// arrayReference is an array as it stands in the JSON value.
type arrayReference struct {
	Kind   string  `json:"kind"`
	DType  string  `json:"dtype"`
	Shape  []int   `json:"shape"`
	File   *int    `json:"file"`
	Offset int64   `json:"offset"` // bytes
	Length int64   `json:"length"` // bytes
	Base64 *string `json:"base64"`
}

// Arrays reads the arrays of the value, in the order in which they stand there; the members of objects come in the
// order of their names.
func (r *Result) Arrays() ([]Array, error) {
	var value any
	if err := json.Unmarshal(r.Value, &value); err != nil {
		return nil, fmt.Errorf("decoding what %s returned: %w", r.Environment, err)
	}
	var arrays []Array
	err := walkArrays(value, func(reference arrayReference) error {
		array, err := r.readArray(reference)
		if err == nil {
			arrays = append(arrays, array)
		}
		return err
	})
	return arrays, err
}

// walkArrays visits the arrays of a decoded value.
func walkArrays(value any, visit func(arrayReference) error) error {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if err := walkArrays(item, visit); err != nil {
				return err
			}
		}
	case map[string]any:
		if content, ok := value["$array"]; ok && len(value) == 1 {
			encoded, err := json.Marshal(content)
			if err != nil {
				return fmt.Errorf("decoding an array: %w", err)
			}
			var reference arrayReference
			if err := json.Unmarshal(encoded, &reference); err != nil {
				return fmt.Errorf("decoding an array: %w", err)
			}
			return visit(reference)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if err := walkArrays(value[name], visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Result) readArray(reference arrayReference) (Array, error) {
	array := Array{Kind: reference.Kind, DType: reference.DType, Shape: reference.Shape}
	var err error
	switch {
	case reference.Base64 != nil:
		array.Data, err = base64.StdEncoding.DecodeString(*reference.Base64)
	case reference.File != nil:
		array.Data, err = r.read(*reference.File, reference.Offset, reference.Length)
	default:
		err = fmt.Errorf("it has neither a file nor its bytes")
	}
	if err != nil {
		return array, fmt.Errorf("reading an array of %v %s: %w", reference.Shape, reference.DType, err)
	}
	item, err := array.itemBytes()
	if err != nil {
		return array, err
	}
	count := 1
	for _, length := range array.Shape {
		if length < 0 || (length > 0 && count > math.MaxInt/length) {
			return array, fmt.Errorf("an array has the shape %v", array.Shape)
		}
		count *= length
	}
	if count*item != len(array.Data) {
		return array, fmt.Errorf("an array of %v %s has %d bytes", array.Shape, array.DType, len(array.Data))
	}
	return array, nil
}

// torchTypes are torch's plain dtypes as numpy writes them. bfloat16 has no counterpart: Float32 widens it.
var torchTypes = map[string]string{
	"bool": "|b1", "uint8": "|u1", "int8": "|i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4", "int32": "<i4",
	"uint64": "<u8", "int64": "<i8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}

// numpyType returns the dtype as numpy writes it; empty when numpy has none.
func (a *Array) numpyType() string {
	if a.Kind == "torch" {
		return torchTypes[a.DType]
	}
	return a.DType
}

func (a *Array) itemBytes() (int, error) {
	if a.Kind == "torch" {
		switch {
		case a.DType == "bfloat16":
			return 2, nil
		case strings.HasPrefix(a.DType, "float8"):
			return 1, nil
		}
	}
	name := a.numpyType()
	var order, kind byte
	var size int
	if count, _ := fmt.Sscanf(name, "%c%c%d", &order, &kind, &size); count != 3 || size < 0 {
		return 0, fmt.Errorf("an array has the dtype %q, which is not known here", a.DType)
	}
	if kind == 'U' {
		size *= 4
	}
	return size, nil
}

// NPY returns the array as a .npy file, version 1.0. bfloat16 becomes float32, without loss.
func (a *Array) NPY() ([]byte, error) {
	descr, data := a.numpyType(), a.Data
	if a.Kind == "torch" && a.DType == "bfloat16" {
		descr, data = "<f4", widen(a.Data)
	}
	if descr == "" {
		return nil, fmt.Errorf("a .npy file can not hold %s", a.DType)
	}
	shape := make([]string, len(a.Shape))
	for i, length := range a.Shape {
		shape[i] = fmt.Sprintf("%d,", length)
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, strings.Join(shape, " "))
	const fixed = 10 // magic, version, the header's length
	padding := 64 - (fixed+len(header)+1)%64
	header += strings.Repeat(" ", padding%64) + "\n"
	file := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(file[8:], uint16(len(header)))
	file = append(file, header...)
	return append(file, data...), nil
}

// widen turns bfloat16 into float32: its upper half.
func widen(data []byte) []byte {
	wide := make([]byte, 2*len(data))
	for i := 0; i+1 < len(data); i += 2 {
		wide[2*i+2], wide[2*i+3] = data[i], data[i+1]
	}
	return wide
}

// Float32 returns the elements as float32; integers as they are, without scaling. Complex numbers and text are
// refused.
func (a *Array) Float32() ([]float32, error) {
	if a.Kind == "torch" && a.DType == "bfloat16" {
		wide := Array{DType: "<f4", Data: widen(a.Data)}
		return wide.Float32()
	}
	name := a.numpyType()
	size, err := a.itemBytes()
	if err != nil || len(name) < 3 || size == 0 {
		return nil, fmt.Errorf("elements of %s are not numbers", a.DType)
	}
	var order binary.ByteOrder = binary.LittleEndian
	if name[0] == '>' {
		order = binary.BigEndian
	}
	read := elementReader(name[1:], order)
	if read == nil {
		return nil, fmt.Errorf("elements of %s are not numbers", a.DType)
	}
	values := make([]float32, len(a.Data)/size)
	for i := range values {
		values[i] = read(a.Data[i*size:])
	}
	return values, nil
}

func elementReader(kind string, order binary.ByteOrder) func([]byte) float32 {
	switch kind {
	case "b1", "u1":
		return func(b []byte) float32 { return float32(b[0]) }
	case "i1":
		return func(b []byte) float32 { return float32(int8(b[0])) }
	case "u2":
		return func(b []byte) float32 { return float32(order.Uint16(b)) }
	case "i2":
		return func(b []byte) float32 { return float32(int16(order.Uint16(b))) }
	case "u4":
		return func(b []byte) float32 { return float32(order.Uint32(b)) }
	case "i4":
		return func(b []byte) float32 { return float32(int32(order.Uint32(b))) }
	case "u8":
		return func(b []byte) float32 { return float32(order.Uint64(b)) }
	case "i8":
		return func(b []byte) float32 { return float32(int64(order.Uint64(b))) }
	case "f2":
		return func(b []byte) float32 { return halfToFloat(order.Uint16(b)) }
	case "f4":
		return func(b []byte) float32 { return math.Float32frombits(order.Uint32(b)) }
	case "f8":
		return func(b []byte) float32 { return float32(math.Float64frombits(order.Uint64(b))) }
	}
	return nil
}

// halfToFloat widens an IEEE 754 binary16.
func halfToFloat(half uint16) float32 {
	sign := uint32(half&0x8000) << 16
	exponent := uint32(half>>10) & 0x1f
	fraction := uint32(half & 0x3ff)
	switch exponent {
	case 0: // zero or subnormal: fraction * 2^-24
		value := float32(fraction) * float32(1.0/(1<<24))
		return math.Float32frombits(math.Float32bits(value) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
