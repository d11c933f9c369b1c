package config

import (
	"github.com/headgate/headgate/internal/ratelimitdraft"
	"github.com/headgate/headgate/internal/yamldoc"
)

// Headers says which response headers tell clients about their limits; the zero value is none.
type Headers struct {
	// Draft is RateLimit-Policy and RateLimit, as a version of draft-ietf-httpapi-ratelimit-headers has them.
	Draft   bool
	Version ratelimitdraft.Version
	// Legacy is X-RateLimit-Limit, -Remaining and -Reset.
	Legacy bool
	// OlderDraft is RateLimit-Limit, -Remaining and -Reset, beside others.
	OlderDraft bool
}

const (
	headersBoth   = "both"  // the default version of the draft, and legacy
	headersDraft  = "draft" // the default version
	headersLegacy = "legacy"
	headersOlder  = "older-draft"
)

// headerWords returns what can be said of headers.
func headerWords() []string {
	var words []string
	for _, v := range ratelimitdraft.All() {
		words = append(words, v.Version)
	}
	return append(words, headersDraft, headersLegacy, headersBoth, headersOlder, off)
}

// words returns what a config would say.
func (h Headers) words() []string {
	words := []string{}
	if h.Draft {
		words = append(words, h.Version.Names().Version)
	}
	if h.Legacy {
		words = append(words, headersLegacy)
	}
	if h.OlderDraft {
		words = append(words, headersOlder)
	}
	if len(words) == 0 {
		words = append(words, off)
	}
	return words
}

// headers reads one word or a list of them.
func (d *decoder) headers(n *yamldoc.Node, key string, c *Config) {
	items := []*yamldoc.Node{n}
	if n.Kind == yamldoc.List {
		items = n.Items
	}
	c.Headers = Headers{}
	var drafts int
	words := headerWords()
	for _, item := range items {
		if d.unset[item] {
			continue
		}
		i := d.Choose(item, key, words)
		if i < 0 {
			continue
		}
		switch words[i] {
		case headersBoth:
			c.Headers.Draft, c.Headers.Legacy = true, true
			drafts++
		case headersLegacy:
			c.Headers.Legacy = true
		case headersOlder:
			c.Headers.OlderDraft = true
		case off:
			if len(items) > 1 {
				d.Bad(item, "%s: %s stands alone: remove it, or the others", key, off)
			}
		default:
			c.Headers.Draft, c.Headers.Version = true, versionOf(words[i])
			drafts++
		}
	}
	switch h := &c.Headers; {
	case drafts > 1:
		d.Bad(n, "%s: the draft is there in several versions: name one", key)
	case h.OlderDraft && !h.Draft && !h.Legacy:
		d.Bad(n, "%s: %s comes beside others: write [%s, %[2]s]", key, headersOlder, headersLegacy)
	}
}

// versionOf returns the version of the draft that a word means: the default one if it names none.
func versionOf(word string) ratelimitdraft.Version {
	for i, v := range ratelimitdraft.All() {
		if v.Version == word {
			return ratelimitdraft.Version(i)
		}
	}
	return ratelimitdraft.Draft11
}
