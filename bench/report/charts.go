package report

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart shows a number of some cases, as a multiple of lockwire's.
type chart struct {
	file, title, axis string
	cases, labels     []string
	metric            string
}

func chartList() []chart {
	callers := []string{"1", "8", "64", "512"}
	with := func(prefix string, list []string) (names []string) {
		for _, n := range list {
			names = append(names, prefix+n)
		}
		return names
	}
	const ops, times = "ops/s", "times lockwire's (higher is better)"
	const less = "times lockwire's (lower is better)"
	replies := []string{"simple", "integer", "bulk64", "bulk16k", "array100", "map"} // generic against generic
	return []chart{
		{file: "get.svg", title: "GET over TCP by number of callers: operations/s", axis: times,
			cases: with("get-tcp-", callers), labels: callers, metric: ops},
		{file: "get-cpu.svg", title: "GET over TCP by number of callers: CPU of the client for each", axis: less,
			cases: with("get-tcp-", callers), labels: callers, metric: "client CPU µs/op"},
		{file: "locks.svg", title: "Lock and unlock, names of their own, by number of callers: pairs/s", axis: times,
			cases: with("lock-own-", callers[:3]), labels: callers[:3], metric: ops},
		{file: "contended.svg", title: "One lock, processes × callers: changes of hands/s", axis: times,
			cases: with("contended-", []string{"1x10", "1x100", "4x25"}), labels: []string{"1 × 10", "1 × 100", "4 × 25"}, metric: "hand-overs/s"},
		{file: "codec.svg", title: "Time to decode a reply", axis: less,
			cases: with("codec-", replies), labels: replies, metric: "ns/op"},
		{file: "footprint.svg", title: "Size of a small program", axis: less,
			cases: []string{"footprint-build"}, labels: []string{""}, metric: "binary KiB"},
	}
}

// Charts writes the charts with results into dir, and returns their names and titles in order.
func (r *Results) Charts(dir string) (files, titles []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	for _, c := range chartList() {
		series := c.series(r)
		if len(series) == 0 {
			continue
		}
		if err := c.write(filepath.Join(dir, c.file), series); err != nil {
			return nil, nil, err
		}
		files, titles = append(files, c.file), append(titles, c.title)
	}
	ok, err := r.leads(dir)
	if ok {
		files, titles = slices.Insert(files, 0, leadsFile), slices.Insert(titles, 0, leadsTitle)
	}
	return files, titles, err
}

// leadsFile is the main chart: how many times better lockwire is than the best peer, in each of the cases that the README shows.
const (
	leadsFile  = "leads.svg"
	leadsTitle = "How many times better lockwire is than the best peer"
)

// leads draws the main chart, and reports whether the chart has any data.
func (r *Results) leads(dir string) (ok bool, err error) {
	var values plotter.Values
	var labels []string
	for i := range shown { // the first on top
		s := shown[len(shown)-1-i]
		if c := r.Case(s.test); c != nil {
			if ratio, ok := c.Lead(peer); ok {
				values, labels = append(values, ratio), append(labels, s.title)
			}
		}
	}
	if len(values) == 0 {
		return false, nil
	}
	p := plot.New()
	p.Title.Text = leadsTitle
	p.BackgroundColor = color.White
	p.X.Min = 0
	chart, err := plotter.NewBarChart(values, 0.4*vg.Centimeter)
	if err != nil {
		return false, err
	}
	chart.Horizontal = true
	chart.LineStyle.Width = 0
	chart.Color = fill(ours, nil, nil)
	even, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.6}, {X: 1, Y: float64(len(values)) - 0.4}})
	if err != nil {
		return false, err
	}
	even.Color = color.Gray{0x60}
	even.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
	p.Add(chart, even)
	p.NominalY(labels...)
	return true, p.Save(24*vg.Centimeter, vg.Length(len(values))*0.6*vg.Centimeter+2*vg.Centimeter, filepath.Join(dir, leadsFile))
}

// bars are the bars of a contender, a bar for each case; 0 without a part in the case.
type bars struct {
	name, kind string
	values     plotter.Values
}

func (c chart) series(r *Results) []bars {
	var list []bars
	for i, name := range c.cases {
		test := r.Case(name)
		if test == nil {
			continue
		}
		_, mine := test.Best(ours, c.metric)
		for _, row := range test.sorted() {
			s, ok := row.Numbers[c.metric]
			if !ok || mine == 0 {
				continue
			}
			at := c.find(&list, row)
			at.values[i] = s.Median / mine
		}
	}
	return list
}

func (c chart) find(list *[]bars, row Row) *bars {
	for i := range *list {
		if (*list)[i].name == row.Name {
			return &(*list)[i]
		}
	}
	*list = append(*list, bars{row.Name, row.Kind, make(plotter.Values, len(c.cases))})
	return &(*list)[len(*list)-1]
}

var palette = []color.Color{
	color.RGBA{0x4c, 0x78, 0xa8, 0xff}, color.RGBA{0xf5, 0x85, 0x18, 0xff}, color.RGBA{0x54, 0xa2, 0x4b, 0xff},
	color.RGBA{0xb2, 0x79, 0xa2, 0xff}, color.RGBA{0x9d, 0x75, 0x5d, 0xff}, color.RGBA{0x72, 0xb7, 0xb2, 0xff},
	color.RGBA{0xee, 0xca, 0x3b, 0xff}, color.RGBA{0xff, 0x9d, 0xa6, 0xff}, color.RGBA{0x43, 0x9a, 0xd9, 0xff},
}

// fill is red for lockwire, grey for floors, and for peers a colour each.
func fill(kind string, peers, floors *int) color.Color {
	switch kind {
	case ours:
		return color.RGBA{0xd6, 0x27, 0x28, 0xff}
	case floor:
		*floors++
		return color.Gray{uint8(min(130+35*(*floors), 225))}
	}
	*peers++
	return palette[(*peers-1)%len(palette)]
}

func (c chart) write(path string, series []bars) error {
	p := plot.New()
	p.Title.Text = c.title
	p.Y.Label.Text = c.axis
	p.Y.Min = 0
	p.Legend.Top = true
	p.Legend.Left = false
	p.BackgroundColor = color.White
	const width, height = 24 * vg.Centimeter, 11 * vg.Centimeter
	room := (width - 7*vg.Centimeter) / vg.Length(len(c.cases))
	bar := min(room*0.85/vg.Length(len(series)), 1.2*vg.Centimeter)
	peers, floors := 0, 0
	for i, s := range series {
		chart, err := plotter.NewBarChart(s.values, bar)
		if err != nil {
			return err
		}
		chart.LineStyle.Width = 0
		chart.Color = fill(s.kind, &peers, &floors)
		chart.Offset = (vg.Length(i) - vg.Length(len(series)-1)/2) * bar
		p.Add(chart)
		name := s.name
		if s.kind == floor {
			name = "floor: " + name
		}
		p.Legend.Add(name, chart)
	}
	one := plotter.NewFunction(func(float64) float64 { return 1 })
	one.Color = color.Gray{0x60}
	one.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
	p.Add(one)
	p.NominalX(c.labels...)
	p.X.Min, p.X.Max = -0.6, float64(len(c.cases))-0.4
	return save(p, path, width, height)
}

// save draws the legend beside the chart rather than over the bars.
func save(p *plot.Plot, path string, width, height vg.Length) error {
	canvas := vgsvg.New(width, height)
	whole := draw.New(canvas)
	legend := p.Legend
	p.Legend = plot.NewLegend()
	const margin = 5.5 * vg.Centimeter
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, 0, -margin, 0, 0))
	legend.Left, legend.Top = true, true
	legend.Draw(draw.Crop(whole, width-margin+vg.Points(8), 0, 0, -vg.Points(24)))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// images are links to charts in Markdown.
func images(dir string, files, titles []string) string {
	var b strings.Builder
	for i, file := range files {
		fmt.Fprintf(&b, "![%s](%s/%s)\n\n", titles[i], dir, file)
	}
	return b.String()
}
