package standby

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"handler/function/shared/standby/line"
	"handler/function/shared/text"
)

func TestFirstPlace(t *testing.T) {
	t.Parallel()
	hour, day := 3600, 86400
	at := func(exact, within int, wait *int) placed {
		return placed{"c", line.Answer{Known: true, Queued: true, Exact: exact, Within: within, WaitSeconds: wait}}
	}
	order := []placed{at(1, 0, nil), at(100, 0, &hour), at(0, 1000, nil), at(0, 0, &hour), at(0, 0, &day), at(0, 0, nil)}
	for i := range order {
		for j := range order[i+1:] {
			better, worse := order[i], order[i+1+j]
			for _, pair := range [][]placed{{better, worse}, {worse, better}} {
				if got := best(pair); *got != *better.position() {
					t.Errorf("of %+v and %+v the first is %+v", better.Answer, worse.Answer, got)
				}
			}
		}
	}
	if best(nil) != nil || best([]placed{{"c", line.Answer{}}, {"d", line.Answer{Known: true}}}) != nil {
		t.Error("a place where no queue has it")
	}
}

// Every sentence that a caller may read has its Chinese text.
func TestTranslated(t *testing.T) {
	t.Parallel()
	said := regexp.MustCompile(`(?:problem\.New\([^,]+, |problem\.Invalid\([^,]+(?:\([^)]*\))?, |Text\w+ += |line\.Reason\w+: +)"([^"]+)"`)
	var seen []string
	for _, file := range []string{"orders.go", "view.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range said.FindAllStringSubmatch(string(b), -1) {
			seen = append(seen, m[1])
			if !text.Translated(m[1]) {
				t.Errorf("%s: %q has no Chinese text", file, m[1])
			}
		}
	}
	for _, want := range []string{"There are seats in %s now: buy them.", TextPending, explained[line.ReasonGroup], "is named twice"} {
		if !slices.Contains(seen, want) {
			t.Errorf("%q was not looked at", want)
		}
	}
}
