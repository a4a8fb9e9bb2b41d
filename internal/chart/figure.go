// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is one picture: panels, one above the other, under a common title.
type Figure struct {
	Title  string // "" is none
	Panels []Panel
}

// Panel is Lines, Bars or Histogram.
type Panel interface {
	// prepare checks the data and returns what there is to draw.
	prepare() (*panel, error)
}

// Format is a kind of picture.
type Format int

const (
	// SVG is for web pages and READMEs: some 10 KB a panel, sharp at any size. Its text is text, in Arial or a font of the same widths.
	SVG Format = iota
	// PNG has 1,333 pixels across, two for each point.
	PNG
)

// FormatOf returns the format that a file's name asks for by its ending, .svg or .png.
func FormatOf(file string) (Format, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".svg":
		return SVG, nil
	case ".png":
		return PNG, nil
	}
	return 0, fmt.Errorf("chart: file %q: must end in .svg or .png", file)
}

// All lengths are in points.
const (
	width      vg.Length = 640
	plotHeight vg.Length = 190 // of a panel, its texts not included
	margin     vg.Length = 14
	dpi                  = 150
)

// Save writes the figure to a file, in the format of its ending. The file is not touched when the figure cannot be drawn.
func (f Figure) Save(file string) error {
	format, err := FormatOf(file)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := f.Write(&b, format); err != nil {
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return nil
}

// Write writes the figure. The error names the panel and what is wrong with it, or is the writer's.
func (f Figure) Write(w io.Writer, format Format) error {
	if len(f.Panels) == 0 {
		return errors.New("chart: Figure.Panels is empty: at least one panel must be given")
	}
	panels := make([]*panel, len(f.Panels))
	for i, p := range f.Panels {
		if p == nil {
			return fmt.Errorf("chart: Figure.Panels[%d] is nil", i)
		}
		var err error
		if panels[i], err = p.prepare(); err != nil {
			return fmt.Errorf("chart: Figure.Panels[%d]: %w", i, err)
		}
	}
	title := titleStyle.lines(f.Title, width-2*margin)
	height := 2*margin + titleStyle.height(title)
	for i, p := range panels {
		height += p.height()
		if i > 0 || len(title) > 0 {
			height += margin
		}
	}
	canvas, err := newCanvas(format, height)
	if err != nil {
		return err
	}
	f.draw(draw.NewCanvas(canvas, width, height), title, panels)
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	picture := b.Bytes()
	if format == SVG {
		picture = bytes.ReplaceAll(picture, []byte(oneFont), []byte(anyFont))
	}
	if _, err := w.Write(picture); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return nil
}

// The library names the font that it has measured, and no other for who does not have it. Arial has the same widths. A quotation mark in a
// text is escaped, so a text is never taken for the attribute.
const (
	oneFont = `style="font-family:Liberation Sans;`
	anyFont = `style="font-family:'Liberation Sans',Arial,Helvetica,sans-serif;`
)

func newCanvas(format Format, height vg.Length) (vg.CanvasWriterTo, error) {
	switch format {
	case SVG:
		return vgsvg.New(width, height), nil
	case PNG:
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}, nil
	}
	return nil, fmt.Errorf("chart: Format is %d: must be SVG or PNG", format)
}

// draw lays the panels out from the top. Their y axes stand below each other, however wide the labels are.
func (f Figure) draw(c draw.Canvas, title []string, panels []*panel) {
	c.SetColor(color.White)
	c.Fill(c.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	c.Max.Y -= titleStyle.draw(c, title)
	var labels vg.Length
	for _, p := range panels {
		labels = max(labels, p.labelWidth())
	}
	for i, p := range panels {
		if i > 0 || len(title) > 0 {
			c.Max.Y -= margin
		}
		part := c
		part.Min.Y = c.Max.Y - p.height()
		p.draw(part, labels)
		c.Max.Y = part.Min.Y
	}
}
