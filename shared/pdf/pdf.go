// Package pdf writes small PDF documents with text in any script.
//
// Text is shaped by HarfBuzz (its port to Go), put in visual order, and drawn
// with the glyph offsets that marks need; only the outlines used are embedded,
// and the characters go with the glyphs (ActualText, ToUnicode), so that text can
// be searched, copied and read aloud.
//
// Lengths are millimetres from the upper left corner; sizes of text are points.
package pdf

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/go-text/typesetting/font"
)

const pointsPerMM = 72 / 25.4

// maxPages bounds a document.
const maxPages = 200

// Color is red, green and blue, 0 to 255.
type Color struct{ R, G, B uint8 }

// Align is where a line stands to its x.
type Align int

// The values of Align.
const (
	Left Align = iota
	Center
	Right
)

// Style is how text is drawn.
type Style struct {
	Size  float64 // points
	Bold  bool
	Color Color
	Align Align
}

// Info is what a viewer shows of a document.
type Info struct {
	Title, Author string
	Language      string // BCP 47
	Created       time.Time
}

// Document is a document being written. Not safe for concurrent use.
type Document struct {
	fonts *Fonts
	set   *typesetter
	info  Info
	pages []*Page
	used  []*usedFont
	err   error
}

// usedFont is a font of this document with what of it is used.
type usedFont struct {
	face   *face
	glyphs map[font.GID]bool
	runes  map[font.GID]string
}

// Page is one page of a document.
type Page struct {
	doc           *Document
	width, height float64 // mm
	body          bytes.Buffer
}

// New begins a document. Close must be called when it is not needed any more.
func New(fonts *Fonts, info Info) *Document {
	return &Document{fonts: fonts, set: fonts.take(), info: info}
}

// Close gives the document's caches back.
func (d *Document) Close() {
	if d.set != nil {
		d.fonts.give(d.set)
		d.set = nil
	}
}

// Page adds a page of this size.
func (d *Document) Page(width, height float64) *Page {
	if len(d.pages) >= maxPages {
		d.fail(fmt.Errorf("pdf: more than %d pages", maxPages))
	}
	p := &Page{doc: d, width: width, height: height}
	d.pages = append(d.pages, p)
	return p
}

func (d *Document) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Rect fills a rectangle.
func (p *Page) Rect(x, y, w, h float64, c Color) {
	fmt.Fprintf(&p.body, "%s rg %s %s %s %s re f\n", rgb(c), p.x(x), p.y(y+h), points(w), points(h))
}

// Circle fills a circle.
func (p *Page) Circle(x, y, r float64, c Color) {
	const k = 0.5523 // the curve that is nearest a quarter circle
	fmt.Fprintf(&p.body, "%s rg %s %s m", rgb(c), p.x(x+r), p.y(y))
	for _, q := range [][6]float64{
		{1, k, k, 1, 0, 1}, {-k, 1, -1, k, -1, 0}, {-1, -k, -k, -1, 0, -1}, {k, -1, 1, -k, 1, 0},
	} {
		for i := 0; i < 6; i += 2 {
			fmt.Fprintf(&p.body, " %s %s", p.x(x+r*q[i]), p.y(y+r*q[i+1]))
		}
		p.body.WriteString(" c")
	}
	p.body.WriteString(" f\n")
}

// Line draws a line of a width in millimetres, dashed in equal parts of dash
// millimetres if that is not 0.
func (p *Page) Line(x1, y1, x2, y2, width, dash float64, c Color) {
	pattern := "[] 0 d"
	if dash > 0 {
		pattern = fmt.Sprintf("[%s] 0 d", points(dash))
	}
	fmt.Fprintf(&p.body, "%s RG %s w %s %s %s m %s %s l S\n", rgb(c), points(width), pattern,
		p.x(x1), p.y(y1), p.x(x2), p.y(y2))
}

// Modules fills the dark squares of a size×size picture, such as a QR code,
// into a square of side millimetres.
func (p *Page) Modules(x, y, side float64, size int, dark func(column, row int) bool, c Color) {
	unit := side / float64(size)
	fmt.Fprintf(&p.body, "%s rg", rgb(c))
	for row := range size {
		for column := 0; column < size; {
			end := column
			for end < size && dark(end, row) {
				end++
			}
			if end > column {
				fmt.Fprintf(&p.body, " %s %s %s %s re", p.x(x+float64(column)*unit), p.y(y+float64(row+1)*unit),
					points(float64(end-column)*unit), points(unit))
			}
			column = max(end, column+1)
		}
	}
	p.body.WriteString(" f\n")
}

// Text draws one line with its baseline at y and returns its width.
func (p *Page) Text(x, y float64, s string, style Style) float64 {
	return p.Lines(x, y, 0, 0, 1, s, style)
}

// Width is the width that Text would take.
func (p *Page) Width(s string, style Style) float64 {
	return widest(p.doc.set.set(s, style.Bold, 0, 0), style.Size)
}

// Fit draws one line, smaller if need be, but not below least points, so that it
// takes at most width; what still does not fit ends in an ellipsis.
func (p *Page) Fit(x, y, width, least float64, s string, style Style) {
	if w := p.Width(s, style); w > width {
		style.Size = max(least, style.Size*width/w*0.999)
	}
	p.Lines(x, y, width, 0, 1, s, style)
}

// Lines draws a paragraph that takes at most width (0: as much as it needs) and
// maxLines (0: any number); the first baseline is at y, the next leading
// millimetres below (0: one and a third of the size). It returns the width of
// one line or the height of several.
func (p *Page) Lines(x, y, width, leading float64, maxLines int, s string, style Style) float64 {
	limit := 0.0
	if width > 0 {
		limit = width * pointsPerMM / style.Size * em
	}
	if leading == 0 {
		leading = style.Size / pointsPerMM * 4 / 3
	}
	lines := p.doc.set.set(s, style.Bold, limit, maxLines)
	for i, l := range lines {
		p.draw(x, y+float64(i)*leading, l, style)
	}
	if maxLines == 1 {
		return widest(lines, style.Size)
	}
	return float64(len(lines)) * leading
}

func widest(lines []line, size float64) float64 {
	w := 0.0
	for _, l := range lines {
		w = max(w, l.width)
	}
	return w * size / em / pointsPerMM
}

func (p *Page) draw(x, y float64, l line, style Style) {
	w := l.width * style.Size / em / pointsPerMM
	switch style.Align {
	case Center:
		x -= w / 2
	case Right:
		x -= w
	}
	b := &p.body
	fmt.Fprintf(b, "%s rg %s RG\n", rgb(style.Color), rgb(style.Color))
	at := 0.0 // thousandths from x
	for _, r := range l.runs {
		// Viewers put right-to-left glyphs back in reading order themselves, and
		// some would turn an ActualText round once more.
		if !r.rtl {
			fmt.Fprintf(b, "/Span <</ActualText %s>> BDC ", utf16Hex(r.characters()))
		}
		b.WriteString("BT")
		index, u := p.doc.use(r.face)
		mode := "0 Tr"
		if r.faux {
			mode = "2 Tr " + number(style.Size/32) + " w"
		}
		px, _ := strconv.ParseFloat(p.x(x), 64)
		fmt.Fprintf(b, " /F%d %s Tf %s 1 0 0 1 %s %s Tm [", index, number(style.Size), mode,
			number(px+at*style.Size/em), p.y(y))
		at += u.glyphRun(b, r, style.Size)
		b.WriteString(" ET")
		if !r.rtl {
			b.WriteString(" EMC")
		}
		b.WriteString("\n")
	}
}

// glyphRun writes the inside of a TJ array and closes it. A mark raised or
// lowered by the font interrupts the array with a text rise.
func (u *usedFont) glyphRun(b *bytes.Buffer, r run, size float64) float64 {
	advance, pen, rise := 0.0, 0.0, 0.0
	open := false
	move := func(to float64) {
		if by := to - pen; math.Abs(by) >= 0.5 {
			if open {
				b.WriteString(">")
				open = false
			}
			b.WriteString(number(-by))
			pen = to
		}
	}
	for i, g := range r.glyphs {
		u.glyphs[g.GlyphID] = true
		if i == 0 || r.glyphs[i-1].ClusterIndex != g.ClusterIndex {
			u.note(r.cluster(i))
		}
		if y := thousandths(g.YOffset); math.Abs(y-rise) >= 0.5 {
			if open {
				b.WriteString(">")
				open = false
			}
			fmt.Fprintf(b, "] TJ %s Ts [", number(y*size/em))
			rise = y
		}
		move(advance + thousandths(g.XOffset))
		if !open {
			b.WriteString("<")
			open = true
		}
		fmt.Fprintf(b, "%04X", uint16(g.GlyphID))
		pen += u.width(g.GlyphID)
		advance += thousandths(g.XAdvance)
	}
	if open {
		b.WriteString(">")
	}
	b.WriteString("] TJ")
	if rise != 0 {
		b.WriteString(" 0 Ts")
	}
	return advance
}

// note records which characters the glyphs of a cluster stand for: each its own
// where the font has one for it, the first of the others what is left over.
func (u *usedFont) note(cluster []font.GID, runes []rune) {
	left := slices.Clone(runes)
	var open []font.GID
	for _, g := range cluster {
		at := slices.IndexFunc(left, func(r rune) bool {
			own, ok := u.face.NominalGlyph(r)
			return ok && own == g
		})
		if at < 0 {
			open = append(open, g)
			continue
		}
		if _, known := u.runes[g]; !known {
			u.runes[g] = string(left[at])
		}
		left = slices.Delete(left, at, at+1)
	}
	if len(open) == 0 || len(left) == 0 {
		return
	}
	if _, known := u.runes[open[0]]; !known {
		u.runes[open[0]] = string(left)
	}
}

// width is a glyph's own advance in whole thousandths, as the W array says it.
func (u *usedFont) width(g font.GID) float64 {
	return math.Round(float64(u.face.HorizontalAdvance(g)) * 1000 / float64(u.face.Upem()))
}

func (d *Document) use(f *face) (int, *usedFont) {
	for i, u := range d.used {
		if u.face == f {
			return i, u
		}
	}
	u := &usedFont{face: f, glyphs: map[font.GID]bool{}, runes: map[font.GID]string{}}
	d.used = append(d.used, u)
	return len(d.used) - 1, u
}

// Bytes writes the document. The same calls give the same bytes.
func (d *Document) Bytes() ([]byte, error) {
	if d.set.err != nil {
		d.fail(d.set.err)
	}
	if d.err != nil {
		return nil, d.err
	}
	w := &writer{}
	w.buffer.WriteString("%PDF-1.7\n%\xE2\xE3\xCF\xD3\n")
	const catalog, pages, info, resources = 1, 2, 3, 4
	w.offsets = make([]int, resources)

	var fontRefs []string
	for i, u := range d.used {
		ref, err := w.font(d.fonts, u)
		if err != nil {
			return nil, err
		}
		fontRefs = append(fontRefs, fmt.Sprintf("/F%d %d 0 R", i, ref))
	}
	var kids []string
	for _, p := range d.pages {
		content := w.stream("", p.body.Bytes())
		kid := w.object(fmt.Sprintf("<</Type/Page/Parent %d 0 R/MediaBox[0 0 %s %s]/Resources %d 0 R/Contents %d 0 R>>",
			pages, points(p.width), points(p.height), resources, content))
		kids = append(kids, fmt.Sprintf("%d 0 R", kid))
	}
	w.at(catalog, fmt.Sprintf("<</Type/Catalog/Pages %d 0 R/Lang(%s)/ViewerPreferences<</DisplayDocTitle true>>>>",
		pages, literal(d.info.Language)))
	w.at(pages, fmt.Sprintf("<</Type/Pages/Count %d/Kids[%s]>>", len(kids), strings.Join(kids, " ")))
	w.at(info, fmt.Sprintf("<</Title %s/Author %s/CreationDate(D:%s)>>", utf16Hex(d.info.Title), utf16Hex(d.info.Author),
		d.info.Created.UTC().Format("20060102150405Z")))
	w.at(resources, fmt.Sprintf("<</Font<<%s>>>>", strings.Join(fontRefs, " ")))
	return w.finish(catalog, info), nil
}

// writer numbers objects and remembers where they begin.
type writer struct {
	buffer  bytes.Buffer
	offsets []int // of object i+1
}

func (w *writer) object(body string) int {
	w.offsets = append(w.offsets, 0)
	w.at(len(w.offsets), body)
	return len(w.offsets)
}

func (w *writer) at(number int, body string) {
	w.offsets[number-1] = w.buffer.Len()
	fmt.Fprintf(&w.buffer, "%d 0 obj\n%s\nendobj\n", number, body)
}

func (w *writer) stream(dict string, data []byte) int {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	z.Write(data) // a bytes.Buffer never fails
	z.Close()
	return w.object(fmt.Sprintf("<<%s/Filter/FlateDecode/Length %d>>\nstream\n%s\nendstream", dict, packed.Len(), packed.Bytes()))
}

// font writes a font with the glyphs that are used (PDF 1.7, 9.7).
func (w *writer) font(fonts *Fonts, u *usedFont) (int, error) {
	program, err := fonts.subset(u.face.from, u.glyphs)
	if err != nil {
		return 0, err
	}
	used := slices.Sorted(maps.Keys(u.glyphs))
	name := "HFTKT" + string(rune('A'+len(w.offsets)%26)) + "+" + fontName(u.face.from.file)

	var widths strings.Builder
	for _, g := range used {
		fmt.Fprintf(&widths, "%d[%d]", g, int(u.width(g)))
	}
	file := w.stream(fmt.Sprintf("/Length1 %d", len(program)), program)
	box := fonts.table(u.face.from, "head")
	scale := 1000 / float64(u.face.Upem())
	extents, _ := u.face.FontHExtents()
	descriptor := w.object(fmt.Sprintf("<</Type/FontDescriptor/FontName/%s/Flags 4/FontBBox[%d %d %d %d]/ItalicAngle 0/Ascent %d/Descent %d/CapHeight %d/StemV 80/FontFile2 %d 0 R>>",
		name, scaled(box, 36, scale), scaled(box, 38, scale), scaled(box, 40, scale), scaled(box, 42, scale),
		int(float64(extents.Ascender)*scale), int(float64(extents.Descender)*scale), int(float64(extents.Ascender)*scale*0.7), file))
	descendant := w.object(fmt.Sprintf("<</Type/Font/Subtype/CIDFontType2/BaseFont/%s/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>/FontDescriptor %d 0 R/DW 0/W[%s]/CIDToGIDMap/Identity>>",
		name, descriptor, widths.String()))
	unicodes := w.stream("", toUnicode(u))
	return w.object(fmt.Sprintf("<</Type/Font/Subtype/Type0/BaseFont/%s/Encoding/Identity-H/DescendantFonts[%d 0 R]/ToUnicode %d 0 R>>",
		name, descendant, unicodes)), nil
}

func scaled(table []byte, offset int, scale float64) int {
	return int(float64(int16(binary.BigEndian.Uint16(table[offset:]))) * scale)
}

// toUnicode maps glyphs back to characters for viewers that do not read
// ActualText. At most 100 entries a block (Adobe technical note 5014).
func toUnicode(u *usedFont) []byte {
	var b bytes.Buffer
	b.WriteString("/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n" +
		"/CIDSystemInfo <</Registry (Adobe) /Ordering (UCS) /Supplement 0>> def\n" +
		"/CMapName /Adobe-Identity-UCS def /CMapType 2 def\n" +
		"1 begincodespacerange <0000> <FFFF> endcodespacerange\n")
	glyphs := slices.SortedFunc(maps.Keys(u.runes), cmp.Compare[font.GID])
	for block := range slices.Chunk(glyphs, 100) {
		fmt.Fprintf(&b, "%d beginbfchar\n", len(block))
		for _, g := range block {
			fmt.Fprintf(&b, "<%04X> <%s>\n", uint16(g), hex.EncodeToString(utf16Bytes(u.runes[g])))
		}
		b.WriteString("endbfchar\n")
	}
	b.WriteString("endcmap CMapName currentdict /CMap defineresource pop end end\n")
	return b.Bytes()
}

func (w *writer) finish(catalog, info int) []byte {
	start := w.buffer.Len()
	fmt.Fprintf(&w.buffer, "xref\n0 %d\n0000000000 65535 f \n", len(w.offsets)+1)
	for _, offset := range w.offsets {
		fmt.Fprintf(&w.buffer, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&w.buffer, "trailer\n<</Size %d/Root %d 0 R/Info %d 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(w.offsets)+1, catalog, info, start)
	return w.buffer.Bytes()
}

func (p *Page) x(mm float64) string { return points(mm) }
func (p *Page) y(mm float64) string { return points(p.height - mm) }
func points(mm float64) string      { return number(mm * pointsPerMM) }
func rgb(c Color) string            { return channel(c.R) + " " + channel(c.G) + " " + channel(c.B) }
func channel(v uint8) string        { return number(float64(v) / 255) }
func utf16Hex(s string) string      { return "<FEFF" + hex.EncodeToString(utf16Bytes(s)) + ">" }
func fontName(file string) string {
	return strings.TrimSuffix(file[strings.LastIndexByte(file, '/')+1:], ".ttf")
}
func literal(s string) string { return strings.NewReplacer("\\", "", "(", "", ")", "").Replace(s) }

func utf16Bytes(s string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.BigEndian.AppendUint16(b, u)
	}
	return b
}

// number writes a length with at most three decimals.
func number(v float64) string {
	s := strconv.FormatFloat(v, 'f', 3, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" || s == "" {
		return "0"
	}
	return s
}
