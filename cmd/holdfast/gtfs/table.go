package gtfs

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits against archives that unpack to more than they should.
const (
	maxFileBytes   = 1 << 30 // the largest national feeds have stop_times.txt of some 700 MB
	maxRecordBytes = 1 << 20 // one row; an unclosed quote would swallow the file otherwise
	maxColumns     = 200
)

// Error is a fault of the feed. Line is 0 where a whole file is meant, Field is
// empty where a whole row is.
type Error struct {
	File   string
	Line   int
	Field  string
	Detail string
}

// Error reads "stop_times.txt:12: arrival_time: must be …".
func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s = fmt.Sprintf("%s:%d", s, e.Line)
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	return s + ": " + e.Detail
}

// row is one record of a table with its place in the file.
type row struct {
	file   string
	line   int
	column map[string]int
	fields []string
}

// get is a field without surrounding spaces, empty if the column is missing.
func (r row) get(field string) string {
	if i, ok := r.column[field]; ok {
		return strings.TrimSpace(r.fields[i])
	}
	return ""
}

// need is a field that must not be empty.
func (r row) need(field string) (string, error) {
	s := r.get(field)
	if s == "" {
		return "", r.fault(field, "must not be empty")
	}
	return s, nil
}

func (r row) fault(field, format string, args ...any) error {
	return &Error{File: r.file, Line: r.line, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// counting stops a reader that gives more than a file, or a record, may have.
type counting struct {
	from         io.Reader
	total, since int64
}

var (
	errFileSize   = errors.New("is larger than 1 GiB unpacked")
	errRecordSize = errors.New("has a row of more than 1 MiB (an unclosed quote?)")
)

func (c *counting) Read(p []byte) (int, error) {
	if c.total > maxFileBytes {
		return 0, errFileSize
	}
	if c.since > maxRecordBytes {
		return 0, errRecordSize
	}
	n, err := c.from.Read(p)
	c.total += int64(n)
	c.since += int64(n)
	return n, err
}

// read calls each for every row of a table and says whether the file exists.
// The header must have every required column; CRLF, a byte order mark, quoted
// fields and blank lines are as RFC 4180 and the GTFS reference have them.
func read(fsys fs.FS, name string, required []string, each func(row) error) (bool, error) {
	file, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &Error{File: name, Detail: "cannot be opened: " + err.Error()}
	}
	defer file.Close()
	count := &counting{from: file}
	body := io.Reader(count)
	mark := make([]byte, 3)
	n, err := io.ReadFull(body, mark)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return true, readFault(name, 0, err)
	}
	if !bytes.Equal(mark[:n], []byte("\xef\xbb\xbf")) {
		body = io.MultiReader(bytes.NewReader(mark[:n]), body)
	}
	in := csv.NewReader(body)
	in.FieldsPerRecord = -1
	header, err := in.Read()
	if err == io.EOF {
		return true, &Error{File: name, Line: 1, Detail: "has no header"}
	}
	if err != nil {
		return true, readFault(name, 1, err)
	}
	if len(header) > maxColumns {
		return true, &Error{File: name, Line: 1, Detail: fmt.Sprintf("has more than %d columns", maxColumns)}
	}
	column := make(map[string]int, len(header))
	for i, h := range header {
		h = strings.TrimSpace(h)
		if _, twice := column[h]; twice && h != "" {
			return true, &Error{File: name, Line: 1, Field: h, Detail: "stands twice in the header"}
		}
		column[h] = i
	}
	for _, field := range required {
		if _, ok := column[field]; !ok {
			return true, &Error{File: name, Line: 1, Field: field, Detail: "the column is missing"}
		}
	}
	for {
		count.since = 0
		fields, err := in.Read()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return true, readFault(name, 0, err)
		}
		line, _ := in.FieldPos(0)
		r := row{file: name, line: line, column: column, fields: fields}
		if len(fields) != len(header) {
			if len(fields) == 1 && strings.TrimSpace(fields[0]) == "" {
				continue
			}
			return true, r.fault("", "has %d fields, the header has %d", len(fields), len(header))
		}
		if i := slices.IndexFunc(fields, func(s string) bool { return !utf8.ValidString(s) }); i >= 0 {
			return true, r.fault(strings.TrimSpace(header[i]), "is not UTF-8")
		}
		if err := each(r); err != nil {
			return true, err
		}
	}
}

func readFault(name string, line int, err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &Error{File: name, Line: parse.StartLine, Detail: "is not CSV: " + parse.Err.Error()}
	}
	if errors.Is(err, errFileSize) || errors.Is(err, errRecordSize) {
		return &Error{File: name, Line: line, Detail: err.Error()}
	}
	return &Error{File: name, Line: line, Detail: "cannot be read: " + err.Error()}
}
