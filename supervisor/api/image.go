package api

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"strings"
)

// Images returns the pictures that an array holds: height by width, with one, three or four channels last, one picture
// or a batch of them. Floating-point elements run from 0 to 1, as ComfyUI's do, and are clamped; of integers only 8 bits
// are taken.
func (a *Array) Images() ([]image.Image, error) {
	batch, height, width, channels := 1, 0, 0, 1
	switch shape := a.Shape; len(shape) {
	case 2:
		height, width = shape[0], shape[1]
	case 3:
		height, width, channels = shape[0], shape[1], shape[2]
		if channels != 1 && channels != 3 && channels != 4 { // a batch of masks
			batch, height, width, channels = shape[0], shape[1], shape[2], 1
		}
	case 4:
		batch, height, width, channels = shape[0], shape[1], shape[2], shape[3]
	default:
		return nil, fmt.Errorf("an array of shape %v is no picture", shape)
	}
	if channels != 1 && channels != 3 && channels != 4 || height == 0 || width == 0 {
		return nil, fmt.Errorf("an array of shape %v is no picture", a.Shape)
	}
	scale, err := a.pixelScale()
	if err != nil {
		return nil, err
	}
	values, err := a.Float32()
	if err != nil {
		return nil, err
	}
	pictures := make([]image.Image, batch)
	size := height * width * channels
	for i := range pictures {
		pictures[i] = picture(values[i*size:(i+1)*size], height, width, channels, scale)
	}
	return pictures, nil
}

// pixelScale is what elements are multiplied by to run from 0 to 255.
func (a *Array) pixelScale() (float32, error) {
	name := a.numpyType()
	switch {
	case a.DType == "bfloat16", strings.HasPrefix(strings.TrimLeft(name, "<>|="), "f"), strings.HasSuffix(name, "b1"):
		return 255, nil
	case strings.HasSuffix(name, "u1"):
		return 1, nil
	}
	return 0, fmt.Errorf("an array of %s is no picture: elements are floating-point from 0 to 1, or 8 bits", a.DType)
}

func picture(values []float32, height, width, channels int, scale float32) image.Image {
	level := func(value float32) uint8 {
		scaled := float64(value * scale)
		if math.IsNaN(scaled) {
			return 0
		}
		return uint8(math.Round(min(255, max(0, scaled))))
	}
	if channels == 1 {
		gray := image.NewGray(image.Rect(0, 0, width, height))
		for i, value := range values {
			gray.Pix[i] = level(value)
		}
		return gray
	}
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := range height * width {
		pixel := values[i*channels : (i+1)*channels]
		alpha := uint8(255)
		if channels == 4 {
			alpha = level(pixel[3])
		}
		picture.SetNRGBA(i%width, i/width, color.NRGBA{R: level(pixel[0]), G: level(pixel[1]), B: level(pixel[2]), A: alpha})
	}
	return picture
}
