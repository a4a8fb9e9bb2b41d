// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// textOf is a text element of an SVG, with the box that it takes.
type textOf struct {
	text                     string
	left, right, top, bottom float64
}

// pathOf is a path, with its style.
type pathOf struct {
	d, style string
}

// svg draws a figure and reads the picture back.
func svg(t *testing.T, f Figure) (texts []textOf, paths []pathOf) {
	t.Helper()
	var b bytes.Buffer
	if err := f.Write(&b, SVG); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts, paths
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := make(map[string]string)
		for _, a := range e.Attr {
			at[a.Name.Local] = a.Value
		}
		switch e.Name.Local {
		case "path":
			paths = append(paths, pathOf{at["d"], at["style"]})
		case "text":
			var text string
			if err := d.DecodeElement(&text, &e); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(at["style"], "Arial") {
				t.Errorf("text %q has no second font: %s", text, at["style"])
			}
			texts = append(texts, boxOf(t, text, at))
		}
	}
}

var fontSize = regexp.MustCompile(`font-size:([0-9.]+)px`)

func boxOf(t *testing.T, text string, at map[string]string) textOf {
	t.Helper()
	x, errX := strconv.ParseFloat(at["x"], 64)
	y, errY := strconv.ParseFloat(at["y"], 64)
	size := 16.0 // "medium"
	if m := fontSize.FindStringSubmatch(at["style"]); m != nil {
		size, _ = strconv.ParseFloat(m[1], 64)
	}
	if errX != nil || errY != nil || size == 0 {
		t.Fatalf("text %q is at %v", text, at)
	}
	s := labelStyle
	for _, known := range []style{titleStyle, panelStyle, quietStyle} {
		if math.Abs(known.Font.Size.Points()-size) < 0.01 {
			s = known
		}
	}
	y = -y // the picture's y grows downwards here, from the bottom of the canvas
	return textOf{text, x, x + s.Width(text).Points(), y + 0.72*size, y - 0.21*size}
}

func points(p pathOf) (xs, ys []float64) {
	for _, m := range regexp.MustCompile(`[ML](-?[0-9.e+-]+),(-?[0-9.e+-]+)`).FindAllStringSubmatch(p.d, -1) {
		x, _ := strconv.ParseFloat(m[1], 64)
		y, _ := strconv.ParseFloat(m[2], 64)
		xs, ys = append(xs, x), append(ys, y)
	}
	return xs, ys
}

// ofSeries are the paths in the colour of the i-th series.
func ofSeries(paths []pathOf, i int) (own []pathOf) {
	c := looks[i].Color.(color.RGBA)
	for _, p := range paths {
		if strings.Contains(p.style, fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B)) {
			own = append(own, p)
		}
	}
	return own
}

func find(t *testing.T, texts []textOf, text string) textOf {
	t.Helper()
	var found []textOf
	for _, x := range texts {
		if x.text == text {
			found = append(found, x)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%q stands in the picture %d times, want once", text, len(found))
	}
	return found[0]
}

// crowded has all kinds of panels, and more text than there is room for.
func crowded() Figure {
	r := rand.New(rand.NewPCG(1, 2))
	long := strings.Repeat("a long name that goes on ", 12)
	var x, wave, clock, slow, fast []float64
	for i := range 60 {
		x = append(x, float64(i))
		clock = append(clock, 1.79e9+7*float64(i))
		wave = append(wave, 3e4+1e4*math.Sin(float64(i)/5))
	}
	for range 3000 {
		slow, fast = append(slow, 1e-3*math.Exp(r.NormFloat64())), append(fast, 1e-5*math.Exp(r.NormFloat64()))
	}
	var lines []Series
	for i := range looks {
		s := Series{Name: fmt.Sprintf("series %d with a name", i), X: clock}
		for _, v := range wave {
			s.Y = append(s.Y, v*1e-8*math.Pow(3, float64(i)))
		}
		lines = append(lines, s)
	}
	var marks []Mark
	for i := range 12 {
		marks = append(marks, Mark{float64(i*i) / 3, fmt.Sprintf("mark %d has a label", i)})
	}
	return Figure{Title: "A title <of> & \"" + long, Panels: []Panel{
		Lines{Title: long, X: Axis{Label: "time", Unit: "s"}, Y: Axis{Label: "a second"}, Series: []Series{{"reads", x, wave}}, Marks: append(marks, Mark{59, "the end"}, Mark{58.5, long})},
		Lines{Title: "Seven", X: Axis{Label: "time of day", Scale: Time}, Y: Axis{Label: "latency", Unit: "s", Scale: Log}, Series: lines},
		Bars{Title: "Many", Y: Axis{Label: "size", Unit: "B", Scale: Log}, Groups: []string{"one", "two is longer", long, "unbreakable-" + strings.Repeat("x", 90), "e", "f", "g", "h"}, Series: []Heights{
			{"left", []float64{1, 1e3, 1e6, 4e8, 9.99e9, 1e3, 3, 1e10}}, {long, []float64{1, 2, 3, 4, 5, 6, 7, 8e9}},
		}},
		Histogram{Title: "Distribution", X: Axis{Label: "how long", Unit: "s", Scale: Log}, Series: []Samples{{"slow", slow}, {"fast", fast}}},
		Bars{Y: Axis{Label: "share", Unit: "%"}, Groups: []string{"only"}, Series: []Heights{{"", []float64{20}}}},
	}}
}

// TestAllIsThere: every title, label and series of a figure is in the picture, as text that is the caller's to the letter.
func TestAllIsThere(t *testing.T) {
	f := Figure{Title: `<a> & "b"`, Panels: []Panel{
		Lines{Title: "first panel", X: Axis{Label: "time", Unit: "min"}, Y: Axis{Label: "queries a second"}, Marks: []Mark{{1.5, "killed"}},
			Series: []Series{{"reads", []float64{0, 1, 2}, []float64{1, 2, 3}}, {"queries", []float64{0, 1, 2}, []float64{3, 2, 1}}, {"one point", []float64{1}, []float64{2}}}},
		Bars{Title: "second panel", Y: Axis{Label: "latency", Unit: "s", Scale: Log}, Groups: []string{"p50", "p99"},
			Series: []Heights{{"without", []float64{0.0123, 0.5}}, {"with", []float64{0.000042, 0.003}}}},
		Histogram{Title: "third panel", X: Axis{Label: "size", Unit: "B"}, Series: []Samples{{"rows", []float64{1, 2, 2, 3}}}},
	}}
	texts, paths := svg(t, f)
	for _, want := range []string{
		`<a> & "b"`, "first panel", "time (min)", "queries a second", "killed", "reads", "queries", "one point",
		"second panel", "latency", "p50", "p99", "without", "with", "12.3 ms", "500 ms", "42 us", "3 ms",
		"third panel", "size (B)", "share of the values (%)", "rows",
	} {
		find(t, texts, want)
	}
	// In the legend and in the plot: blue has three lines, and two bars; vermilion two lines less one; green a line in the legend and a dot.
	for i, want := range []int{2 + 3 + 2, 2 + 3, 2} {
		if got := len(ofSeries(paths, i)); got != want {
			t.Errorf("%d paths in the colour of series %d, want %d", got, i, want)
		}
	}
}

// TestNothingOverlaps also checks that nothing leaves the picture.
func TestNothingOverlaps(t *testing.T) {
	texts, _ := svg(t, crowded())
	if len(texts) < 90 {
		t.Fatalf("only %d texts", len(texts))
	}
	for i, a := range texts {
		if a.left < 0 || a.right > width.Points() || a.bottom < 0 {
			t.Errorf("%q leaves the picture: %+v", a.text, a)
		}
		for _, b := range texts[:i] {
			if a.left < b.right && b.left < a.right && a.bottom < b.top && b.bottom < a.top {
				t.Errorf("%q and %q overlap:\n%+v\n%+v", a.text, b.text, a, b)
			}
		}
	}
}

// TestValuesStandAtTheirTicks: a value is drawn at the height of the tick that names it, on both scales, and at its place along the x axis.
func TestValuesStandAtTheirTicks(t *testing.T) {
	for _, c := range []struct {
		x, y   Axis
		xs, ys []float64
		labels []string // of ys
		along  []string // of xs
	}{
		{Axis{}, Axis{}, []float64{0, 10, 40}, []float64{0, 10_000, 40_000}, []string{"0", "10,000", "40,000"}, []string{"0", "10", "40"}},
		{Axis{Unit: "s"}, Axis{Unit: "s", Scale: Log}, []float64{0, 5, 20}, []float64{1e-6, 1e-3, 1}, []string{"1 us", "1 ms", "1 s"}, []string{"0", "5 s", "20 s"}},
		{Axis{Scale: Log}, Axis{Unit: "B"}, []float64{1, 10, 1000}, []float64{-1e6, 0, 2e6}, []string{"-1 M", "0", "2 M"}, []string{"1", "10", "1,000"}},
		{Axis{Scale: Time}, Axis{Scale: Log}, []float64{0, 60, 240}, []float64{1, 10, 100}, []string{"1", "10", "100"}, []string{"00:00", "00:01", "00:04"}},
	} {
		texts, paths := svg(t, Figure{Panels: []Panel{Lines{X: c.x, Y: c.y, Series: []Series{{"", c.xs, c.ys}}}}})
		own := ofSeries(paths, 0)
		if len(own) != 1 {
			t.Fatalf("%d lines", len(own))
		}
		xs, ys := points(own[0])
		for i, label := range c.labels {
			var at []textOf // "0" may stand at both axes: the first is the x axis's
			for _, x := range texts {
				if x.text == label {
					at = append(at, x)
				}
			}
			if len(at) == 0 {
				t.Fatalf("%+v: no tick %q among %+v", c, label, texts)
			}
			box := at[len(at)-1]
			if middle := (box.top + box.bottom) / 2; math.Abs(middle-ys[i]) > 3 {
				t.Errorf("value %v is at y %v, its tick %q at %v", c.ys[i], ys[i], label, middle)
			}
		}
		for i, label := range c.along {
			for _, x := range texts {
				if x.text == label {
					if middle := (x.left + x.right) / 2; math.Abs(middle-xs[i]) > 1 {
						t.Errorf("value %v is at x %v, its tick %q at %v", c.xs[i], xs[i], label, middle)
					}
					break
				}
			}
		}
	}
}

// TestBarsAreAsHighAsTheyAre: from 0 on a linear scale; on a log scale equal ratios are equal differences, and the smallest can be seen.
func TestBarsAreAsHighAsTheyAre(t *testing.T) {
	heights := func(y Axis, values ...float64) (hs []float64) {
		_, paths := svg(t, Figure{Panels: []Panel{Bars{Y: y, Groups: make([]string, len(values)), Series: []Heights{{"", values}}}}})
		for _, p := range ofSeries(paths, 0) {
			_, ys := points(p)
			low, high := math.Inf(1), math.Inf(-1)
			for _, v := range ys {
				low, high = min(low, v), max(high, v)
			}
			hs = append(hs, high-low)
		}
		return hs
	}
	if h := heights(Axis{}, 10, 20, 0); len(h) != 3 || math.Abs(h[1]-2*h[0]) > 0.1 || h[2] != 0 || h[0] < 20 {
		t.Errorf("10, 20 and 0 are %v high", h)
	}
	if h := heights(Axis{Scale: Log}, 1, 10, 100); len(h) != 3 || math.Abs((h[1]-h[0])-(h[2]-h[1])) > 0.1 || h[0] < 20 {
		t.Errorf("1, 10 and 100 are %v high on a log scale", h)
	}
}

// TestHistogramCountsAll: each value falls into one bin, the highest too.
func TestHistogramCountsAll(t *testing.T) {
	values := []float64{1, 1.5, 2, 10, 99, 100}
	for _, scale := range []Scale{Linear, Log} {
		h := Histogram{X: Axis{Scale: scale}, Bins: 2}
		s := h.outline(values, span{1, 100})
		want := []float64{100 * 4. / 6, 100 * 4. / 6, 100 * 2. / 6, 100 * 2. / 6}
		if scale == Log { // the border is 10, which belongs to the upper bin
			want = []float64{50, 50, 50, 50}
		}
		if len(s.Y) != 4 {
			t.Fatalf("%v", s)
		}
		for i := range want {
			if math.Abs(s.Y[i]-want[i]) > 1e-9 {
				t.Errorf("scale %d: shares %v, want %v", scale, s.Y, want)
			}
		}
		if border := s.X[1]; math.Abs(border-map[Scale]float64{Linear: 50.5, Log: 10}[scale]) > 1e-9 {
			t.Errorf("scale %d: the bins meet at %v", scale, border)
		}
	}
}

// TestSameBytes: equal figures are equal pictures, drawn at the same time or not.
func TestSameBytes(t *testing.T) {
	for format, f := range map[Format]Figure{SVG: crowded(), PNG: {Panels: crowded().Panels[4:]}} {
		pictures := make([]bytes.Buffer, 3)
		var wg sync.WaitGroup
		for i := range pictures {
			wg.Go(func() {
				if err := f.Write(&pictures[i], format); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range pictures {
			if !bytes.Equal(pictures[i].Bytes(), pictures[0].Bytes()) {
				t.Errorf("format %d: pictures 0 and %d differ", format, i)
			}
		}
	}
}

// TestPNG: the picture has the size that is promised, and the colour of each series.
func TestPNG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.PNG")
	if err := (Figure{Panels: crowded().Panels[1:2]}).Save(file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if w := img.Bounds().Dx(); w != 1333 {
		t.Errorf("%d pixels wide, want 1333", w)
	}
	bounds := img.Bounds()
	rgba := image.NewRGBA(bounds)
	draw.Draw(rgba, bounds, img, bounds.Min, draw.Src)
	for i, l := range looks {
		c := l.Color.(color.RGBA)
		if n := bytes.Count(rgba.Pix, []byte{c.R, c.G, c.B, c.A}); n < 50 {
			t.Errorf("%d pixels in the colour of series %d", n, i)
		}
	}
}

// TestRefused: what cannot be shown as it is is an error that names it, and leaves the file alone.
func TestRefused(t *testing.T) {
	ones := []float64{1, 1}
	lines := func(s ...Series) Figure { return Figure{Panels: []Panel{Lines{Title: "T", Series: s}}} }
	bars := func(y Axis, groups int, s ...Heights) Figure {
		return Figure{Panels: []Panel{Bars{Title: "T", Y: y, Groups: make([]string, groups), Series: s}}}
	}
	histogram := func(bins int, x Axis, s ...Samples) Figure {
		return Figure{Panels: []Panel{Histogram{Title: "T", Bins: bins, X: x, Series: s}}}
	}
	for _, c := range []struct {
		figure Figure
		want   string
	}{
		{Figure{}, "Figure.Panels is empty"},
		{Figure{Panels: []Panel{nil}}, "Figure.Panels[0] is nil"},
		{lines(), `Figure.Panels[0]: Lines "T": Series is empty`},
		{lines(Series{"a", nil, nil}), "Series[0] (a) is empty"},
		{lines(Series{"a", ones, ones}, Series{"b", ones, ones[:1]}), "Series[1] (b) has 2 X and 1 Y"},
		{lines(Series{"a", ones, []float64{1, math.NaN()}}), "Series[0] (a).Y[1] is NaN"},
		{lines(Series{"a", []float64{math.Inf(-1), 1}, ones}), "Series[0] (a).X[0] is -Inf"},
		{lines(Series{"a", ones, []float64{1, 2e15}}), "Series[0] (a).Y[1] is 2e+15: must be at most 1e15"},
		{lines(Series{"a", ones, ones}, Series{"a", ones, ones}), `Series[1].Name is "a": Series[0] has that name`},
		{lines(Series{"a", ones, ones}, Series{"", ones, ones}), "Series[1].Name is empty"},
		{lines(make([]Series, 8)...), "Series has 8 elements: at most 7"},
		{Figure{Panels: []Panel{Lines{Y: Axis{Scale: Log}, Series: []Series{{"a", ones, []float64{1, 0}}}}}}, "Series[0] (a).Y[1] is 0: must be above 0 on a log scale"},
		{Figure{Panels: []Panel{Lines{Y: Axis{Scale: Time}, Series: []Series{{"a", ones, ones}}}}}, "Y.Scale is 2"},
		{Figure{Panels: []Panel{Lines{Series: []Series{{"a", ones, ones}}, Marks: []Mark{{1, "in"}, {2, "out"}}}}}, "Marks[1] (out).X is 2: must be from 1 to 1"},
		{Figure{Panels: []Panel{Lines{Series: []Series{{"a", ones, ones}}, Marks: []Mark{{math.NaN(), "n"}}}}}, "Marks[0] (n).X is NaN"},
		{bars(Axis{}, 0, Heights{"a", nil}), "Groups is empty"},
		{bars(Axis{}, 2), "Series is empty"},
		{bars(Axis{}, 3, Heights{"a", ones}), "Series[0] (a) has 2 Values for 3 Groups"},
		{bars(Axis{}, 2, Heights{"a", []float64{1, -1}}), "Series[0] (a).Values[1] () is -1: must not be below 0"},
		{bars(Axis{Scale: Log}, 2, Heights{"a", []float64{0, 1}}), "must be above 0 on a log scale"},
		{bars(Axis{Scale: 7}, 2, Heights{"a", ones}), "Y.Scale is 7"},
		{histogram(0, Axis{}), "Series is empty"},
		{histogram(0, Axis{}, Samples{"a", nil}), "Series[0] (a) is empty"},
		{histogram(-1, Axis{}, Samples{"a", ones}), "Bins is -1: must be from 2 to 500"},
		{histogram(0, Axis{Scale: Time}, Samples{"a", ones}), "X.Scale is 2"},
		{histogram(0, Axis{}, Samples{"a", []float64{1, math.Inf(1)}}), "Series[0] (a).Values[1] is +Inf"},
	} {
		file := filepath.Join(t.TempDir(), "kept.svg")
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := c.figure.Save(file)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "chart: ") {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
		if text, _ := os.ReadFile(file); string(text) != "kept" {
			t.Errorf("%q: the file was touched", c.want)
		}
	}
	good := lines(Series{"a", ones, ones})
	if err := good.Save("a.jpeg"); err == nil || !strings.Contains(err.Error(), `"a.jpeg": must end in .svg or .png`) {
		t.Error(err)
	}
	if err := good.Write(io.Discard, 9); err == nil || !strings.Contains(err.Error(), "Format is 9") {
		t.Error(err)
	}
	if err := good.Save(filepath.Join(t.TempDir(), "no", "a.svg")); err == nil {
		t.Error("saved into a folder that does not exist")
	}
}

// TestExtremes: what is at the edge of the permitted can be drawn, with labels that do not meet.
func TestExtremes(t *testing.T) {
	for _, values := range [][]float64{{0}, {5}, {-3, -2}, {-1e15, 1e15}, {1e-15, 2e-15}, {7, 7, 7}, {1e9, 1e9 + 1}} {
		for _, scale := range []Scale{Linear, Log, Time} {
			for _, unit := range []string{"", "s"} {
				if scale == Log && values[0] <= 0 {
					continue
				}
				x := Axis{Scale: scale, Unit: unit}
				y := x
				if scale == Time {
					y.Scale = Linear
				}
				s := []Series{{"", values, values}}
				var b bytes.Buffer
				if err := (Figure{Panels: []Panel{Lines{X: x, Y: y, Series: s}}}).Write(&b, SVG); err != nil {
					t.Errorf("%v, scale %d: %v", values, scale, err)
				}
				if bytes.Contains(b.Bytes(), []byte("NaN")) || bytes.Contains(b.Bytes(), []byte("Inf")) {
					t.Errorf("%v, scale %d: NaN or Inf in the picture", values, scale)
				}
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		unit  string
		v, of float64
		want  string
	}{
		{"", 0, 1, "0"}, {"", 12.34, 100, "12.3"}, {"", 1, 1, "1"}, {"", 999.6, 1000, "1,000"}, {"", 12345, 1, "12,345"}, {"", -1234567, 1, "-1.235 M"},
		{"", 2.5e9, 1, "2.5 G"}, {"", 0.25, 1, "0.25"}, {"", 0.00123, 1, "0.00123"}, {"", 1.5e-7, 1, "1.5e-07"}, {"%", 99.95, 100, "100"},
		{"s", 0, 1, "0"}, {"s", 0.5, 0.5, "500 ms"}, {"s", 0.5, 2, "0.5 s"}, {"s", 42e-6, 42e-6, "42 us"}, {"s", 7e-9, 7e-9, "7 ns"}, {"s", 90, 90, "90 s"},
	} {
		if got := (Axis{Unit: c.unit}).format(c.v, c.of); got != c.want {
			t.Errorf("%v %q (of %v) is written %q, want %q", c.v, c.unit, c.of, got, c.want)
		}
	}
}
