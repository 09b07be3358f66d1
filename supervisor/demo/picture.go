package demo

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
)

// picture calls the node that paints and writes what it returned.
func (r *run) picture(ctx context.Context, step *Step) error {
	const width, height = 960, 540
	result, err := r.call(ctx, "DemoPicture", map[string]any{"width": width, "height": height, "seed": 7}, nil)
	if err != nil {
		return err
	}
	defer result.Close()
	arrays, err := result.Arrays()
	if err != nil {
		return err
	}
	if len(arrays) != 1 {
		return fmt.Errorf("the node returned %d arrays, want one", len(arrays))
	}
	images, err := arrays[0].Images()
	if err != nil {
		return err
	}
	if size := images[0].Bounds().Size(); size.X != width || size.Y != height {
		return fmt.Errorf("the picture has %d by %d pixels, want %d by %d", size.X, size.Y, width, height)
	}
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, images[0]); err != nil {
		return fmt.Errorf("encoding the picture: %w", err)
	}
	file, err := filepath.Abs(r.options.Picture)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", r.options.Picture, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making the picture's folder: %w", err)
	}
	if err := os.WriteFile(file, encoded.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	r.outcome.Picture = file
	step.Seen["file"], step.Seen["pixel_bytes"] = file, len(arrays[0].Data)
	r.say(step, "%d by %d pixels, %d bytes in a memory file: %s", width, height, len(arrays[0].Data), file)
	return nil
}
