package function

import (
	"encoding/json"
	"testing"

	"handler/function/shared/problem"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	cases := []struct {
		body  string
		field string // "" for right
	}{
		{`{"type":"ABANDON","booking":"B1"}`, ""},
		{`{"type":"REFUND","booking":"B1","preview":true}`, ""},
		{`{"type":"REFUND"}`, "booking"},
		{`{"type":"TIMEOUT","booking":"B1"}`, "type"},
		{`{"type":"RESCHEDULE","booking":"B1","to":{}}`, ""},
		{`{"type":"RESCHEDULE","booking":"B1","to":{},"preview":true}`, ""},
		{`{"type":"RESCHEDULE","booking":"B1"}`, "to"},
		{`{"type":"RESCHEDULE","booking":"B1","to":null}`, "to"},
		{`{"type":"RESCHEDULE","booking":"B1","to":{},"seats":["3-12A"]}`, "seats"},
		{`{"type":"REFUND","booking":"B1","seats":["3-12A"]}`, "seats"},
		{`{"type":"REFUND","booking":"B1","to":{}}`, "to"},
		{`{"type":"ABANDON","booking":"B1","preview":true}`, "preview"},
		{`{}`, "type"},
	}
	for _, c := range cases {
		var b body
		if err := json.Unmarshal([]byte(c.body), &b); err != nil {
			t.Fatal(err)
		}
		err := b.validate()
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		p := problem.From(err)
		if p.Code != problem.Unprocessable || len(p.Fields) != 1 || p.Fields[0].Field != c.field {
			t.Errorf("%s: %v, want the field %s", c.body, err, c.field)
		}
	}
}
