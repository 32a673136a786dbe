package seat

import (
	"encoding/binary"
	"errors"
	"time"

	"handler/function/shared/catalog"
)

// A map in Redis, between replicas: its version, legs, moment, then each class
// with its seats' numbers and two bits a leg. A map of 1,000 seats on 71 legs
// takes 19 kB.
const encoding = 1

var errEncoding = errors.New("seat: a map in Redis that cannot be read")

func (m *Map) encode() []byte {
	b := []byte{encoding}
	b = binary.AppendUvarint(b, uint64(m.legs))
	b = binary.AppendVarint(b, m.AsOf.UnixMicro())
	b = binary.AppendUvarint(b, uint64(len(m.classes)))
	for _, c := range m.classes {
		b = binary.AppendUvarint(b, uint64(len(c.id)))
		b = append(b, c.id...)
		b = binary.AppendUvarint(b, uint64(len(c.seats)))
		before := int32(0)
		for _, n := range c.seats {
			b = binary.AppendUvarint(b, uint64(n-before))
			before = n
		}
		bits := make([]byte, (len(c.states)+3)/4)
		for i, s := range c.states {
			bits[i/4] |= byte(s) << (2 * (i % 4))
		}
		b = append(b, bits...)
	}
	return b
}

// decode reads what encode wrote for this sale.
func decode(sale *catalog.Sale, b []byte) (m *Map, err error) {
	defer func() {
		if recover() != nil { // a slice out of range, or a number cut short
			m, err = nil, errEncoding
		}
	}()
	if b[0] != encoding {
		return nil, errEncoding
	}
	b = b[1:]
	next := func() int {
		n, used := binary.Uvarint(b)
		if used <= 0 {
			panic(errEncoding)
		}
		b = b[used:]
		return int(n)
	}
	m = &Map{sale: sale, legs: next()}
	at, used := binary.Varint(b)
	if used <= 0 {
		return nil, errEncoding
	}
	b = b[used:]
	m.AsOf = time.UnixMicro(at).UTC()
	for range next() {
		n := next()
		c := &class{id: string(b[:n]), legs: m.legs}
		b = b[n:]
		c.seats = make([]int32, next())
		before := int32(0)
		for i := range c.seats {
			before += int32(next())
			c.seats[i] = before
		}
		c.states = make([]State, len(c.seats)*m.legs)
		for i := range c.states {
			c.states[i] = State(b[i/4] >> (2 * (i % 4)) & 3)
		}
		b = b[(len(c.states)+3)/4:]
		m.classes = append(m.classes, c)
	}
	if len(b) != 0 || m.legs < 1 {
		return nil, errEncoding
	}
	return m, nil
}
