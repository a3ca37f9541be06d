package middleware

import (
	"net/url"
	"slices"
	"strings"
)

const redacted = "REDACTED"

// redactedKeys are the query parameters the url.* semantic conventions want
// hidden: those that sign or authorise a request at AWS, Azure and Google.
var redactedKeys = []string{
	"AWSAccessKeyId", "Signature", "sig", "X-Goog-Signature",
	"X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token",
}

// redactor hides the values of query parameters.
type redactor struct {
	keys []string
}

func newRedactor(more []string) redactor {
	return redactor{keys: append(slices.Clone(redactedKeys), more...)}
}

// query returns a raw query with the values of the keys replaced. Keys are
// compared without regard to case: showing too little is the better mistake.
func (r redactor) query(raw string) string {
	if !r.hits(raw) {
		return raw
	}
	var b strings.Builder
	b.Grow(len(raw))
	for i, pair := range strings.Split(raw, "&") {
		if i > 0 {
			b.WriteByte('&')
		}
		key, _, hasValue := strings.Cut(pair, "=")
		if hasValue && r.hidden(key) {
			b.WriteString(key)
			b.WriteString("=" + redacted)
			continue
		}
		b.WriteString(pair)
	}
	return b.String()
}

// hits reports whether a query has one of the keys, without allocating when
// it is as plain as most are.
func (r redactor) hits(raw string) bool {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if key, _, ok := strings.Cut(pair, "="); ok && r.hidden(key) {
			return true
		}
	}
	return false
}

func (r redactor) hidden(key string) bool {
	if strings.ContainsAny(key, "%+") {
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain
		}
	}
	for _, k := range r.keys {
		if len(k) == len(key) && strings.EqualFold(k, key) {
			return true
		}
	}
	return false
}

// url is the absolute URL for url.full: without credentials, without the
// secrets of the query.
func (r redactor) url(u *url.URL) string {
	if u.User == nil && (u.RawQuery == "" || !r.hits(u.RawQuery)) {
		return u.String()
	}
	c := *u
	c.RawQuery = r.query(u.RawQuery)
	if u.User != nil {
		c.User = url.UserPassword(redacted, redacted)
		if _, has := u.User.Password(); !has {
			c.User = url.User(redacted)
		}
	}
	return c.String()
}
