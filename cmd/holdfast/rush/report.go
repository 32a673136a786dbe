package rush

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"count": func(n any) string {
		switch n := n.(type) {
		case int:
			return count(n)
		case int64:
			return count(int(n))
		}
		return fmt.Sprint(n)
	},
	"chart": chart,
}).Parse(reportHTML))

// Report writes the result as one HTML page that needs nothing from elsewhere:
// no script, no font, no picture from another host.
func (res *Result) Report(w io.Writer) error { return reportPage.Execute(w, res) }

// Size of a chart in pixels, with room for its axes.
const (
	chartWidth, chartHeight = 860, 220
	chartLeft, chartBottom  = 60, 26
)

// curve is one line of a chart.
type curve struct {
	name, colour string
	values       []float64
}

// chart draws a chart of the report as SVG: "flow" is what happened each
// second, "total" what had come together by then.
func chart(res *Result, what string) template.HTML {
	n := len(res.seconds)
	values := func(f func(point) int64, sum bool) []float64 {
		v := make([]float64, n)
		var total float64
		for i, p := range res.seconds {
			x := float64(f(p))
			total += x
			v[i] = x
			if sum {
				v[i] = total
			}
		}
		return v
	}
	var curves []curve
	switch what {
	case "flow":
		curves = []curve{
			{"requests a second", "#1f5fa8", values(func(p point) int64 { return p.requests }, false)},
			{"joins a second", "#2f8f4e", values(func(p point) int64 { return p.joined }, false)},
			{"no answer or 5xx", "#b3261e", values(func(p point) int64 { return p.failed }, false)},
		}
	case "total":
		curves = []curve{
			{"people admitted", "#1f5fa8", values(func(p point) int64 { return p.admitted }, true)},
			{"seats held", "#b07a00", values(func(p point) int64 { return p.held }, true)},
			{"seats sold", "#2f8f4e", values(func(p point) int64 { return p.sold }, true)},
		}
	}
	return template.HTML(draw(curves)) //nolint:gosec // made of numbers and constants
}

func draw(curves []curve) string {
	top := 1.0
	n := 0
	for _, c := range curves {
		n = max(n, len(c.values))
		for _, v := range c.values {
			top = max(top, v)
		}
	}
	if n < 2 {
		return "<p>Too short to draw.</p>"
	}
	x := func(i int) float64 { return chartLeft + float64(i)*(chartWidth-chartLeft-10)/float64(n-1) }
	y := func(v float64) float64 { return 10 + (1-v/top)*(chartHeight-chartBottom-10) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img">`, chartWidth, chartHeight)
	for i := range 5 {
		v := top * float64(i) / 4
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="axis" x="%d" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, chartWidth-10, y(v), y(v), chartLeft-6, y(v)+4, count(int(v)))
	}
	for i := 0; i < n; i += max(1, (n+9)/10) {
		fmt.Fprintf(&b, `<text class="axis" x="%.1f" y="%d" text-anchor="middle">%d s</text>`, x(i), chartHeight-6, i)
	}
	for _, c := range curves {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.6" points="`, c.colour)
		for i, v := range c.values {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(i), y(v))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg><p class="legend">`)
	for _, c := range curves {
		fmt.Fprintf(&b, `<span style="color:%s">%s</span> `, c.colour, c.name)
	}
	b.WriteString("</p>")
	return b.String()
}
