// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"image/color"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

var (
	titleStyle = newStyle(15, xfont.WeightBold, black)
	panelStyle = newStyle(12.5, xfont.WeightBold, black)
	labelStyle = newStyle(11.5, xfont.WeightNormal, black)
	quietStyle = newStyle(11, xfont.WeightNormal, color.Gray{Y: 70})
)

// style is a font, with what is asked of it here.
type style struct{ text.Style }

func newStyle(size vg.Length, weight xfont.Weight, c color.Color) style {
	return style{text.Style{
		Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight, Size: size},
		XAlign: text.XLeft, YAlign: text.YBottom, Handler: plot.DefaultTextHandler,
	}}
}

// lineHeight is the distance of two base lines.
func (s style) lineHeight() vg.Length { return s.Font.Size * 1.3 }

// height is what the lines take.
func (s style) height(lines []string) vg.Length { return vg.Length(len(lines)) * s.lineHeight() }

// lines breaks a text between words so that no line is wider than wide. A word that is wider is cut.
func (s style) lines(txt string, wide vg.Length) []string {
	var lines []string
	for _, word := range strings.Fields(txt) {
		if n := len(lines); n > 0 && s.Width(lines[n-1]+" "+word) <= wide {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, s.cut(word, wide))
	}
	return lines
}

// cut shortens a text to a width, with an ellipsis.
func (s style) cut(txt string, wide vg.Length) string {
	if s.Width(txt) <= wide {
		return txt
	}
	runes := []rune(txt)
	for n := len(runes) - 1; n > 0; n-- {
		if short := strings.TrimSpace(string(runes[:n])) + "…"; s.Width(short) <= wide {
			return short
		}
	}
	return "…"
}

// draw draws lines from the top of a canvas, at its left, and returns their height.
func (s style) draw(c draw.Canvas, lines []string) vg.Length {
	for i, line := range lines {
		s.at(c, c.Min.X, c.Max.Y-vg.Length(i)*s.lineHeight(), line)
	}
	return s.height(lines)
}

// at draws one line below y, from x to the right.
func (s style) at(c draw.Canvas, x, y vg.Length, line string) {
	c.FillText(s.Style, vg.Point{X: x, Y: y - s.lineHeight()}, line)
}
