package config

import (
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelimitdraft"
	"github.com/headgate/headgate/internal/yamldoc"
)

const (
	headersBoth   = "both"  // the default version of the draft and legacy
	headersDraft  = "draft" // the default version
	headersLegacy = "legacy"
	headersOlder  = "older-draft"
)

// headerWords returns the valid values of headers, the versions of the draft first.
func headerWords() []string {
	var words []string
	for _, v := range ratelimitdraft.All() {
		words = append(words, v.Version)
	}
	return append(words, headersDraft, headersLegacy, headersBoth, headersOlder, off)
}

// wordsOf returns the values of headers that select h.
func wordsOf(h limitfields.Choice) []string {
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
	c.Headers = limitfields.Choice{Version: ratelimitdraft.Draft11} // the default version
	var drafts int
	words := headerWords()
	for _, item := range d.items(n) {
		i := d.Enum(item, key, words)
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
			if len(n.Items) > 1 {
				d.Bad(item, "%s: %s cannot be combined with other values: remove it, or the others", key, off)
			}
		case headersDraft:
			c.Headers.Draft = true
			drafts++
		default:
			c.Headers.Draft, c.Headers.Version = true, ratelimitdraft.Version(i)
			drafts++
		}
	}
	switch h := &c.Headers; {
	case drafts > 1:
		d.Bad(n, "%s: more than one version of the draft: keep one", key)
	case h.OlderDraft && !h.Draft && !h.Legacy:
		d.Bad(n, "%s: %s must be combined with another value: write [%s, %[2]s]", key, headersOlder, headersLegacy)
	}
}
