// Package demo carries a small timetable, the coaches of its trains and a hall,
// all of our own making: what `holdfast up --demo` puts on sale, what the
// README's walk uses, and a feed for tests.
package demo

import (
	"embed"
	"io/fs"
)

//go:embed feed/*.txt train.yaml hall.yaml
var files embed.FS

// Feed is the GTFS feed.
func Feed() fs.FS {
	feed, err := fs.Sub(files, "feed")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return feed
}

// Train is the layout of its trains, in YAML.
func Train() []byte { return must("train.yaml") }

// Hall is the hall, in YAML.
func Hall() []byte { return must("hall.yaml") }

func must(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // embedded above
	}
	return b
}
