package money

import (
	"context"
	"testing"

	"handler/function/tests/harness"
)

func TestSchema(t *testing.T) {
	d := harness.DB(t)
	var n int
	if err := d.App.QueryRow(context.Background(), "SELECT count(*) FROM payment").Scan(&n); err != nil {
		t.Fatal(err)
	}
}
