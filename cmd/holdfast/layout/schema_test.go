package layout

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"handler/function/demo"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/goccy/go-yaml"
)

func schema(t *testing.T, name string) *openapi3.Schema {
	t.Helper()
	b, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	s := &openapi3.Schema{}
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func value(t *testing.T, text string) (v any) {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The schemas take the demo's files and refuse what the reader refuses.
func TestSchema(t *testing.T) {
	t.Parallel()
	train, hall := schema(t, "layout.schema.json"), schema(t, "hall.schema.json")
	for _, c := range []struct {
		name   string
		schema *openapi3.Schema
		text   string
		right  bool
	}{
		{"demo train", train, string(demo.Train()), true},
		{"demo hall", hall, string(demo.Hall()), true},
		{"plain", train, plain, true},
		{"a room", train, plain + "room: {draw_seconds: 10, admit_per_second: 0.5}", true},
		{"a hall is no train", train, string(demo.Hall()), false},
		{"unknown field", train, plain + "colour: red", false},
		{"unknown attribute", train, strings.Replace(plain, "A-B", "A-B, attributes: {jacuzzi: 1A}", 1), false},
		{"unknown gateway", train, strings.Replace(plain, "stripe", "coins", 1), false},
		{"no coaches", train, strings.Replace(plain, "coaches", "coachez", 1), false},
		{"hold of a day", train, plain + "hold_seconds: 86400", false},
		{"negative price", hall, strings.Replace(string(demo.Hall()), "1450", "-1", 1), false},
	} {
		if err := c.schema.VisitJSON(value(t, c.text)); (err == nil) != c.right {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Schema and reader know the same fields.
func TestSchemaFields(t *testing.T) {
	t.Parallel()
	sameFields(t, "layout", schema(t, "layout.schema.json"), reflect.TypeFor[Layout]())
	sameFields(t, "hall", schema(t, "hall.schema.json"), reflect.TypeFor[Hall]())
}

func sameFields(t *testing.T, at string, s *openapi3.Schema, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice && typ != reflect.TypeFor[Names]() {
		if typ.Kind() == reflect.Slice && s.Items != nil {
			s = s.Items.Value
		}
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	fields := map[string]reflect.Type{}
	collect(typ, fields)
	var want, got []string
	for name := range fields {
		want = append(want, name)
	}
	for name := range s.Properties {
		got = append(got, name)
	}
	sort.Strings(want)
	sort.Strings(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the schema has %v, the reader %v", at, got, want)
		return
	}
	for name, field := range fields {
		sameFields(t, at+"."+name, s.Properties[name].Value, field)
	}
}

func collect(typ reflect.Type, into map[string]reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, inline, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if inline == "inline" {
			collect(f.Type, into)
			continue
		}
		into[name] = f.Type
	}
}
