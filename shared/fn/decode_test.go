package fn

import (
	"testing"
	"time"

	"handler/function/shared/problem"
)

type inner struct {
	Rate float64   `json:"rate"`
	At   time.Time `json:"at"`
}

type decoded struct {
	Sale  string `json:"sale"`
	Patch *struct {
		inner
		Title string `json:"title"`
	} `json:"patch"`
	Lists []map[string]string `json:"lists"`
}

func TestDecodeNamesTheField(t *testing.T) {
	for body, field := range map[string]string{
		`{"sale":"1"}`: "",
		`{"lists":[{"a":"x"},{"a":"y"}],"sale":"a\"b:c"}`: "",
		`{"sale":"\\", "patch": {"title":"{"}}`:           "",
		`{"SALE":"1"}`:                                    "SALE",
		`{"sale":"1","sale":"2"}`:                         "sale",
		`{"patch":{"title":"a"},"patch":{}}`:              "patch",
		`{"sale":"1","\u0073ale":"2"}`:                    `\u0073ale`,
		`{"colour":1}`:                                    "colour",
		`{"patch":{"rate":"fast"}}`:                       "patch.rate",
		`{"patch":{"at":"tomorrow"}}`:                     "at",
		`{"sale":1}`:                                      "sale",
		`{"sale":"a\u0000b"}`:                             "sale",
		`{"sale":"1"} {}`:                                 "body",
		`[]`:                                              "body",
		``:                                                "body",
	} {
		err := (&Request{Body: []byte(body)}).Decode(&decoded{})
		if field == "" {
			if err != nil {
				t.Errorf("%s: %v", body, err)
			}
			continue
		}
		p := problem.From(err)
		if p.Code != problem.BadRequest || len(p.Fields) != 1 || p.Fields[0].Field != field {
			t.Errorf("%s: want the field %s, got %v", body, field, err)
		}
	}
}
