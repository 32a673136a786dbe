package fn

import (
	"mime"
	"strconv"
	"strings"
)

// Preferred chooses a media type of those offered for an Accept header (RFC 9110,
// 12.5.1); the first offered where nothing fits or nothing is said.
func Preferred(accept string, offered ...string) string {
	best, bestQ := offered[0], 0.0
	for _, part := range strings.Split(accept, ",") {
		kind, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		q := 1.0
		if s, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(s, 64); err != nil {
				continue
			}
		}
		for _, o := range offered {
			group, _, _ := strings.Cut(o, "/")
			if q > bestQ && (kind == o || kind == "*/*" || kind == group+"/*") {
				best, bestQ = o, q
				break
			}
		}
	}
	return best
}

// Matches says whether an If-None-Match header names an entity tag, by the weak
// comparison (RFC 9110, 13.1.2).
func Matches(ifNoneMatch, etag string) bool {
	want := strings.TrimPrefix(etag, "W/")
	for ifNoneMatch != "" {
		var one string
		one, ifNoneMatch, _ = strings.Cut(ifNoneMatch, ",")
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == want {
			return true
		}
	}
	return false
}
