package pdf

import (
	"slices"
	"strings"
	"unicode"

	"github.com/go-text/typesetting/di"
	"github.com/go-text/typesetting/font"
	"github.com/go-text/typesetting/language"
	"github.com/go-text/typesetting/shaping"
	"golang.org/x/image/math/fixed"
	"golang.org/x/text/unicode/bidi"
)

// em is the size every text is shaped at: PDF measures glyphs in thousandths.
const em = 1000

// missing is drawn for a character that no font has: U+FFFD, so that it is seen
// that something stands there.
const missing = '�'

var ellipsis = []rune("…")

// typesetter turns strings into positioned glyphs. It is not safe for
// concurrent use; Fonts keeps a few for reuse, as their caches are worth much.
type typesetter struct {
	fonts   *Fonts
	shaper  shaping.HarfbuzzShaper
	cut     shaping.Segmenter
	wrapper shaping.LineWrapper
	faces   map[string]*face
	byFace  map[*font.Face]*face

	// What ResolveFace chooses by.
	script language.Script
	bold   bool
	err    error
}

// face is a font as a document uses it.
type face struct {
	*font.Face
	from *loadedFont
	bold bool // drawn from a bold file
}

func (f *Fonts) take() *typesetter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.idle); n > 0 {
		t := f.idle[n-1]
		f.idle = f.idle[:n-1]
		return t
	}
	t := &typesetter{fonts: f, faces: map[string]*face{}, byFace: map[*font.Face]*face{}}
	t.shaper.SetFontCacheSize(2 + len(f.files.ByScript) + len(f.files.Then)) // it keeps none by itself
	return t
}

func (f *Fonts) give(t *typesetter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.idle) < maxIdle {
		f.idle = append(f.idle, t)
	}
}

func (t *typesetter) face(name string) *face {
	if f, ok := t.faces[name]; ok {
		return f
	}
	l, err := t.fonts.load(name)
	if err != nil {
		if t.err == nil {
			t.err = err
		}
		return nil
	}
	f := &face{Face: font.NewFace(l.font), from: l, bold: name == t.fonts.files.Bold}
	t.faces[name], t.byFace[f.Face] = f, f
	return f
}

// SetScript is told the script of the runes that follow (shaping.FontmapScript).
func (t *typesetter) SetScript(s language.Script) { t.script = s }

// ResolveFace chooses the font for a rune: its script's, the text font, the
// others in order (shaping.Fontmap).
func (t *typesetter) ResolveFace(r rune) *font.Face {
	files := t.fonts.files
	text := files.Text
	if t.bold {
		text = files.Bold
	}
	try := []string{text}
	if name, ok := files.ByScript[t.script]; ok && name != files.Text {
		try = []string{name, text}
	}
	if own, ok := files.ByScript[language.LookupScript(r)]; ok && own != files.Text {
		try = append(try, own)
	}
	for _, name := range append(try, files.Then...) {
		if f := t.face(name); f != nil {
			if _, ok := f.NominalGlyph(r); ok {
				return f.Face
			}
		}
	}
	if f := t.face(text); f != nil {
		return f.Face
	}
	return nil
}

// line is one line of set text, its runs from left to right.
type line struct {
	runs  []run
	width float64 // in thousandths of the size
}

type run struct {
	face   *face
	faux   bool // bold was asked for and the font has none
	glyphs []shaping.Glyph
	text   []rune // of the whole paragraph; clusters index into it
	rtl    bool
}

// characters is the part of the paragraph that the run's glyphs stand for.
func (r run) characters() string {
	first, last := len(r.text), 0
	for _, g := range r.glyphs {
		first, last = min(first, g.ClusterIndex), max(last, g.ClusterIndex+g.RuneCount)
	}
	if first >= last || last > len(r.text) {
		return ""
	}
	return string(r.text[first:last])
}

// cluster is the glyphs from i on that belong together, and their characters.
func (r run) cluster(i int) ([]font.GID, []rune) {
	g := r.glyphs[i]
	var ids []font.GID
	for _, next := range r.glyphs[i:] {
		if next.ClusterIndex != g.ClusterIndex {
			break
		}
		ids = append(ids, next.GlyphID)
	}
	return ids, r.text[min(g.ClusterIndex, len(r.text)):min(g.ClusterIndex+g.RuneCount, len(r.text))]
}

// set shapes s and breaks it into lines of at most width (thousandths of the
// size; 0 for no limit). More than maxLines end in an ellipsis; 0 for no limit.
// Control characters and line breaks in s become spaces.
func (t *typesetter) set(s string, bold bool, width float64, maxLines int) []line {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, string(missing))))
	if s == "" {
		return nil
	}
	t.bold = bold
	paragraph := t.covered([]rune(s))
	direction := baseDirection(s)
	runs := t.shape(paragraph, direction)
	if runs == nil {
		return nil
	}
	limit := 1 << 30
	if width > 0 {
		limit = int(width)
	}
	config := shaping.WrapConfig{Direction: direction, TruncateAfterLines: maxLines, BreakPolicy: shaping.WhenNecessary}
	if maxLines > 0 {
		if dots := t.shape(ellipsis, direction); len(dots) > 0 {
			config.Truncator = dots[0]
		}
	}
	wrapped, cut := t.wrapper.WrapParagraph(config, limit, paragraph, shaping.NewSliceIterator(runs))

	var lines []line
	for i, outs := range wrapped {
		var set line
		var dots *shaping.Glyph // the first glyph of the ellipsis, which has a text of its own
		if last := len(outs) - 1; cut > 0 && i == len(wrapped)-1 && last >= 0 && len(outs[last].Glyphs) > 0 {
			dots = &outs[last].Glyphs[0]
		}
		for _, out := range visualOrder(outs, paragraph, direction) {
			f := t.byFace[out.Face]
			if f == nil || len(out.Glyphs) == 0 {
				continue
			}
			from := paragraph
			if &out.Glyphs[0] == dots {
				from = ellipsis
			}
			set.runs = append(set.runs, run{
				face: f, faux: bold && !f.bold, text: from,
				glyphs: slices.Clone(out.Glyphs), rtl: out.Direction == di.DirectionRTL,
			})
			for _, g := range out.Glyphs {
				set.width += thousandths(g.XAdvance)
			}
		}
		lines = append(lines, set)
	}
	return lines
}

// covered replaces what no font has by U+FFFD: an empty glyph would leave a
// name blank.
func (t *typesetter) covered(paragraph []rune) []rune {
	script := language.Latin
	for i, r := range paragraph {
		// A mark belongs to the script it follows.
		if own := language.LookupScript(r); own != language.Common && own != language.Inherited {
			script = own
		}
		if unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) {
			continue
		}
		t.script = script
		f := t.ResolveFace(r)
		if f == nil {
			return nil
		}
		if _, ok := f.NominalGlyph(r); !ok {
			paragraph[i] = missing
		}
	}
	return paragraph
}

func (t *typesetter) shape(paragraph []rune, direction di.Direction) []shaping.Output {
	if len(paragraph) == 0 || t.face(t.fonts.files.Text) == nil {
		return nil
	}
	input := shaping.Input{
		Text: paragraph, RunEnd: len(paragraph), Direction: direction,
		Size: fixed.I(em), Language: language.NewLanguage("en"),
	}
	var outs []shaping.Output
	afterRTL := false
	for _, part := range t.cut.Split(input, t) {
		parts := t.spacesApart(part)
		if afterRTL && direction == di.DirectionLTR && part.Direction == di.DirectionLTR {
			parts = numberApart(parts)
		}
		for _, p := range parts {
			outs = append(outs, t.shaper.Shape(p))
		}
		afterRTL = part.Direction == di.DirectionRTL
	}
	return outs
}

// numberApart makes a run of its own of a number that a run begins with.
func numberApart(parts []shaping.Input) []shaping.Input {
	first := parts[0]
	end := first.RunStart
	for end < first.RunEnd && isNumber(first.Text, shaping.Range{Offset: end, Count: 1}) {
		end++
	}
	if end == first.RunStart || end == first.RunEnd {
		return parts
	}
	number := first
	number.RunEnd, first.RunStart = end, end
	return append([]shaping.Input{number, first}, parts[1:]...)
}

// spacesApart gives the spaces at the end of a run in a font of last resort to
// the text font: an emoji's space is as wide as an emoji.
func (t *typesetter) spacesApart(part shaping.Input) []shaping.Input {
	f := t.byFace[part.Face]
	if f == nil || !slices.Contains(t.fonts.files.Then, f.from.file) {
		return []shaping.Input{part}
	}
	end := part.RunEnd
	for end > part.RunStart && part.Text[end-1] == ' ' {
		end--
	}
	if end == part.RunEnd || end == part.RunStart {
		return []shaping.Input{part}
	}
	spaces := part
	part.RunEnd, spaces.RunStart = end, end
	spaces.Face = t.face(t.fonts.files.Text).Face
	return []shaping.Input{part, spaces}
}

// visualOrder puts the runs of a line from left to right (UAX 9, rule L2). A
// number after right-to-left text belongs to it and is read from the left.
func visualOrder(outs []shaping.Output, paragraph []rune, base di.Direction) []shaping.Output {
	levels := make([]int, len(outs))
	for i, out := range outs {
		switch {
		case out.Direction == di.DirectionRTL:
			levels[i] = 1
		case base == di.DirectionRTL, i > 0 && levels[i-1] > 0 && isNumber(paragraph, out.Runes):
			levels[i] = 2
		}
	}
	ordered := slices.Clone(outs)
	for level := 2; level > 0; level-- {
		for i := 0; i < len(ordered); i++ {
			end := i
			for end < len(ordered) && levels[end] >= level {
				end++
			}
			slices.Reverse(ordered[i:end])
			slices.Reverse(levels[i:end])
			i = max(i, end)
		}
	}
	return ordered
}

func isNumber(paragraph []rune, at shaping.Range) bool {
	for _, r := range paragraph[at.Offset:min(at.Offset+at.Count, len(paragraph))] {
		if p, _ := bidi.LookupRune(r); p.Class() != bidi.EN && p.Class() != bidi.AN && p.Class() != bidi.ES && p.Class() != bidi.CS && p.Class() != bidi.ET {
			return false
		}
	}
	return at.Count > 0
}

// baseDirection is that of the first strong character (Unicode UAX 9, P2).
func baseDirection(s string) di.Direction {
	for _, r := range s {
		p, _ := bidi.LookupRune(r)
		switch p.Class() {
		case bidi.L:
			return di.DirectionLTR
		case bidi.R, bidi.AL:
			return di.DirectionRTL
		}
	}
	return di.DirectionLTR
}

func thousandths(v fixed.Int26_6) float64 { return float64(v) / 64 }
