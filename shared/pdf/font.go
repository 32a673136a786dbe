package pdf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/go-text/typesetting/font"
	"github.com/go-text/typesetting/font/opentype"
	"github.com/go-text/typesetting/language"
)

// Files names the font files of a set. Each is a TrueType file (glyf outlines).
type Files struct {
	// Text and Bold are the first choice for everything they cover.
	Text, Bold string
	// ByScript is tried before Text for runes of that script.
	ByScript map[language.Script]string
	// Then is tried in order for what is still not covered.
	Then []string
}

// Fonts is a set of fonts that together cover the scripts people write their
// names in. Files are read when a text first needs them. Safe for concurrent use.
type Fonts struct {
	files Files
	dir   fs.FS

	mu     sync.Mutex
	loaded map[string]*loadedFont
	idle   []*typesetter
}

type loadedFont struct {
	file   string
	font   *font.Font
	tables *opentype.Loader
	raw    map[string][]byte
	err    error
}

// maxIdle bounds the typesetters kept for reuse: each holds glyph caches of a
// few megabytes once it has set Chinese.
const maxIdle = 4

// NewFonts checks that every named file is there and readable as a font.
func NewFonts(dir fs.FS, files Files) (*Fonts, error) {
	f := &Fonts{files: files, dir: dir, loaded: map[string]*loadedFont{}}
	names := append([]string{files.Text, files.Bold}, files.Then...)
	for _, name := range files.ByScript {
		names = append(names, name)
	}
	for _, name := range names {
		if _, err := fs.Stat(dir, name); err != nil {
			return nil, fmt.Errorf("pdf: font: %w", err)
		}
	}
	return f, nil
}

// load reads a font file once. A broken file is an error each time.
func (f *Fonts) load(name string) (*loadedFont, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, ok := f.loaded[name]; ok {
		return l, l.err
	}
	l := &loadedFont{file: name, raw: map[string][]byte{}}
	f.loaded[name] = l
	data, err := fs.ReadFile(f.dir, name)
	if err != nil {
		l.err = err
		return l, err
	}
	if l.tables, l.err = opentype.NewLoader(bytes.NewReader(data)); l.err == nil {
		l.font, l.err = font.NewFont(l.tables)
	}
	if l.err != nil {
		l.err = fmt.Errorf("pdf: font %s: %w", path.Base(name), l.err)
	}
	return l, l.err
}

// table is a raw table, not to be written to; nil if the font has none. It is
// read once: the outlines of a Chinese font have four megabytes.
func (f *Fonts) table(l *loadedFont, tag string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := l.raw[tag]; ok {
		return b
	}
	b, err := l.tables.RawTable(opentype.MustNewTag(tag))
	if err != nil {
		b = nil
	}
	l.raw[tag] = b
	return b
}

// subset makes a TrueType program with the outlines of the glyphs in used (and
// of the parts of composite ones), all others empty. Glyph ids stay as they
// are, so that nothing else has to be rewritten; what is empty compresses to
// next to nothing.
func (f *Fonts) subset(l *loadedFont, used map[font.GID]bool) ([]byte, error) {
	head, glyf, loca := f.table(l, "head"), f.table(l, "glyf"), f.table(l, "loca")
	hhea, hmtx, maxp := f.table(l, "hhea"), f.table(l, "hmtx"), f.table(l, "maxp")
	if len(head) < 54 || len(hhea) < 36 || len(maxp) < 6 || glyf == nil || loca == nil {
		return nil, fmt.Errorf("pdf: font %s is not TrueType", l.file)
	}
	count := int(binary.BigEndian.Uint16(maxp[4:]))
	long := binary.BigEndian.Uint16(head[50:]) == 1
	at := func(i int) int {
		switch {
		case long && 4*i+4 <= len(loca):
			return int(binary.BigEndian.Uint32(loca[4*i:]))
		case !long && 2*i+2 <= len(loca):
			return 2 * int(binary.BigEndian.Uint16(loca[2*i:]))
		}
		return 0
	}
	outline := func(g int) []byte {
		if g >= count {
			return nil
		}
		from, to := at(g), at(g+1)
		if from >= to || to > len(glyf) {
			return nil
		}
		return glyf[from:to]
	}

	keep := map[int]bool{0: true}
	todo := []int{0}
	for g := range used {
		todo = append(todo, int(g))
	}
	for len(todo) > 0 {
		g := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		keep[g] = true
		for _, part := range parts(outline(g)) {
			if !keep[part] {
				todo = append(todo, part)
			}
		}
	}
	last := 0
	for g := range keep {
		last = max(last, g)
	}
	if last >= count {
		return nil, fmt.Errorf("pdf: font %s has no glyph %d", l.file, last)
	}

	var newGlyf, newLoca []byte
	for g := range last + 1 {
		newLoca = binary.BigEndian.AppendUint32(newLoca, uint32(len(newGlyf)))
		if keep[g] {
			newGlyf = append(newGlyf, outline(g)...)
			for len(newGlyf)%4 != 0 {
				newGlyf = append(newGlyf, 0)
			}
		}
	}
	newLoca = binary.BigEndian.AppendUint32(newLoca, uint32(len(newGlyf)))

	metrics := min(int(binary.BigEndian.Uint16(hhea[34:])), last+1)
	newHmtx := make([]byte, min(4*metrics+2*(last+1-metrics), len(hmtx)))
	for g := range keep {
		from, size := 4*g, 4
		if g >= metrics {
			from, size = 4*metrics+2*(g-metrics), 2
		}
		if from+size <= len(newHmtx) {
			copy(newHmtx[from:from+size], hmtx[from:])
		}
	}
	if end := 4 * metrics; end <= len(newHmtx) { // the last full entry counts for all after it
		copy(newHmtx[end-4:end], hmtx[end-4:])
	}
	head, hhea, maxp = bytes.Clone(head), bytes.Clone(hhea), bytes.Clone(maxp)
	binary.BigEndian.PutUint16(head[50:], 1)
	binary.BigEndian.PutUint32(head[8:], 0)
	binary.BigEndian.PutUint16(hhea[34:], uint16(metrics))
	binary.BigEndian.PutUint16(maxp[4:], uint16(last+1))

	tables := []opentype.Table{
		{Content: newGlyf, Tag: opentype.MustNewTag("glyf")},
		{Content: head, Tag: opentype.MustNewTag("head")},
		{Content: hhea, Tag: opentype.MustNewTag("hhea")},
		{Content: newHmtx, Tag: opentype.MustNewTag("hmtx")},
		{Content: newLoca, Tag: opentype.MustNewTag("loca")},
		{Content: maxp, Tag: opentype.MustNewTag("maxp")},
	}
	for _, tag := range []string{"cvt ", "fpgm", "prep"} {
		if b := f.table(l, tag); b != nil {
			tables = append(tables, opentype.Table{Content: b, Tag: opentype.MustNewTag(tag)})
		}
	}
	slices.SortFunc(tables, func(a, b opentype.Table) int { return cmp.Compare(a.Tag, b.Tag) })
	return opentype.WriteTTF(tables), nil
}

// parts lists the glyphs a composite outline is made of (OpenType, table glyf).
func parts(outline []byte) []int {
	const (
		wordArguments = 0x0001
		oneScale      = 0x0008
		more          = 0x0020
		twoScales     = 0x0040
		matrix        = 0x0080
	)
	if len(outline) < 10 || int16(binary.BigEndian.Uint16(outline)) >= 0 {
		return nil
	}
	var list []int
	for b := outline[10:]; len(b) >= 4; {
		flags := binary.BigEndian.Uint16(b)
		list = append(list, int(binary.BigEndian.Uint16(b[2:])))
		size := 6
		if flags&wordArguments != 0 {
			size += 2
		}
		switch {
		case flags&oneScale != 0:
			size += 2
		case flags&twoScales != 0:
			size += 4
		case flags&matrix != 0:
			size += 8
		}
		if flags&more == 0 || len(b) < size {
			break
		}
		b = b[size:]
	}
	return list
}
