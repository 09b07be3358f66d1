package manifest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

var utf8Mark = []byte{0xef, 0xbb, 0xbf}

// decode makes sure that content is UTF-8 text without a byte order mark and without NUL bytes. shift is the
// number of bytes it took away in front. The text is nil when there is nothing to read; edits of the problems
// are of content itself.
func decode(content []byte) (text []byte, shift int, problems []problem) {
	if wide, name := decodeUTF16(content); name != "" {
		p := problem{at: span{0, min(2, len(content))}, severity: Error, code: CodeEncoding,
			message: "the file is " + name + ", not UTF-8", why: "TOML is UTF-8 text, no tool reads it otherwise",
			fix: "save it as UTF-8 (Notepad and PowerShell's > write UTF-16)"}
		if wide != nil {
			p.edits = []Edit{{0, len(content), string(wide)}}
		}
		return nil, 0, []problem{p}
	}
	if bytes.HasPrefix(content, utf8Mark) {
		shift = len(utf8Mark)
		content = content[shift:]
		problems = append(problems, problem{at: span{0, 1}, severity: Warning, code: CodeEncoding,
			message: "the file starts with a byte order mark", why: "it is skipped here, other tools stumble over it",
			fix: "save it as UTF-8 without a mark", edits: []Edit{{0, shift, ""}}})
	}
	if at := bytes.IndexByte(content, 0); at >= 0 {
		return nil, 0, append(problems, problem{at: span{at + shift, at + shift + 1}, severity: Error, code: CodeEncoding,
			message: "the file holds a NUL byte", why: "it is no text, or was damaged when it was written",
			fix: "write the file anew"})
	}
	if at := invalidUTF8(content); at >= 0 {
		return nil, 0, append(problems, problem{at: span{at + shift, at + shift + 1}, severity: Error, code: CodeEncoding,
			message: fmt.Sprintf("the byte 0x%02x is no UTF-8", content[at]), why: "TOML is UTF-8 text, no tool reads it otherwise",
			fix: "save the file as UTF-8"})
	}
	return content, shift, problems
}

// invalidUTF8 is the offset of the first byte that is no UTF-8, or -1.
func invalidUTF8(content []byte) int {
	if utf8.Valid(content) {
		return -1
	}
	for at := 0; at < len(content); {
		r, size := utf8.DecodeRune(content[at:])
		if r == utf8.RuneError && size <= 1 {
			return at
		}
		at += size
	}
	return -1
}

// decodeUTF16 recognises UTF-16 (and UTF-32, which it does not decode) by its mark, or by every second byte of
// the beginning being zero.
func decodeUTF16(content []byte) (text []byte, name string) {
	var order binary.ByteOrder = binary.LittleEndian
	body := content
	switch {
	case bytes.HasPrefix(content, []byte{0xff, 0xfe, 0, 0}), bytes.HasPrefix(content, []byte{0, 0, 0xfe, 0xff}):
		return nil, "UTF-32"
	case bytes.HasPrefix(content, []byte{0xff, 0xfe}):
		body = content[2:]
	case bytes.HasPrefix(content, []byte{0xfe, 0xff}):
		order, body = binary.BigEndian, content[2:]
	case len(content) >= 4 && content[0] != 0 && content[1] == 0 && content[2] != 0 && content[3] == 0:
	case len(content) >= 4 && content[0] == 0 && content[1] != 0 && content[2] == 0 && content[3] != 0:
		order = binary.BigEndian
	default:
		return nil, ""
	}
	if len(body)%2 != 0 {
		return nil, "UTF-16"
	}
	units := make([]uint16, len(body)/2)
	for i := range units {
		units[i] = order.Uint16(body[2*i:])
	}
	return []byte(string(utf16.Decode(units))), "UTF-16"
}
