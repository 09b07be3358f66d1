package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// checkOutput refuses files whose kind says nothing about what to write, before anything is computed.
func checkOutput(path string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json", ".npy", ".png", ".txt":
		return nil
	}
	if path == "" {
		return nil
	}
	return usageErrorf("--out %s: the name must end in .json, .npy, .png or .txt", path)
}

// writeOutput writes a result to the kind of file that its name asks for, and returns the files written.
func writeOutput(result *api.Result, path string) ([]string, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json":
		var indented bytes.Buffer
		if err := json.Indent(&indented, result.Value, "", "  "); err != nil {
			return nil, fmt.Errorf("writing %s: %w", path, err)
		}
		indented.WriteByte('\n')
		return writeFile(path, indented.Bytes())
	case ".txt":
		text, ok := firstText(result.Value)
		if !ok {
			return nil, fmt.Errorf("writing %s: the result holds no text", path)
		}
		return writeFile(path, []byte(text))
	}
	arrays, err := result.Arrays()
	if err != nil {
		return nil, err
	}
	if len(arrays) == 0 {
		return nil, fmt.Errorf("writing %s: the result holds no array", path)
	}
	if strings.ToLower(filepath.Ext(path)) == ".npy" {
		content, err := arrays[0].NPY()
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", path, err)
		}
		return writeFile(path, content)
	}
	return writePictures(arrays, path)
}

func writeFile(path string, content []byte) ([]string, error) {
	if err := os.WriteFile(path, content, 0o666); err != nil {
		return nil, fmt.Errorf("writing the result: %w", err)
	}
	return []string{path}, nil
}

// writePictures writes the first array that holds pictures: one to path, several to path-1, path-2 ...
func writePictures(arrays []api.Array, path string) ([]string, error) {
	var reasons error
	for i := range arrays {
		pictures, err := arrays[i].Images()
		if err != nil {
			reasons = errors.Join(reasons, err)
			continue
		}
		var written []string
		for number, picture := range pictures {
			name := path
			if len(pictures) > 1 {
				extension := filepath.Ext(path)
				name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, extension), number+1, extension)
			}
			var content bytes.Buffer
			if err := png.Encode(&content, picture); err != nil {
				return written, fmt.Errorf("writing %s: %w", name, err)
			}
			if _, err := writeFile(name, content.Bytes()); err != nil {
				return written, err
			}
			written = append(written, name)
		}
		return written, nil
	}
	return nil, fmt.Errorf("writing %s: %w", path, reasons)
}

// firstText finds the first string of a result, which is one itself or holds one in its lists.
func firstText(value json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text, true
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		for _, item := range list {
			if text, ok := firstText(item); ok {
				return text, true
			}
		}
	}
	return "", false
}
