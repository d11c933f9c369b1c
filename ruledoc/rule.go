package ruledoc

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// readRule is a rule with what only matters while it is read or written.
type readRule struct {
	headgate.Rule
	node   *node
	source int
	// Limits are read when the rule's algorithm is known, which may be written after them.
	algorithm        *headgate.Algorithm
	own              readPlan
	tiers, candidate *node
}

var ruleKeys = objectOf(
	textField("id", "names the rule in decisions, headers and logs: letters, digits and `-_.:/`; a counter lives as long as the id "+
		"and the limit's name do", func(r *readRule) *string { return &r.ID }).
		with(`"minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.:/-]+$"`).or("must be given"),
	textField("description", "for people", func(r *readRule) *string { return &r.Description }),
	field[readRule]{
		key: "labels", doc: "for people and their tools: `{team: search}`", unset: "none",
		schema: `"type": "object", "additionalProperties": {"type": "string"}`,
		read:   func(d *decoder, n *node, key string, r *readRule) { r.Labels = d.labels(n, key) },
		write:  func(e *encoder, what string, r *readRule) *node { return e.texts(what, r.Labels) },
	},
	field[readRule]{
		key: "match", doc: "which requests, [by their attributes](#match-and-when): all conditions must hold", unset: "all",
		schema: `"$ref": "#/$defs/match"`,
		read:   func(d *decoder, n *node, key string, r *readRule) { r.Match = d.match(n, key) },
		write:  func(e *encoder, what string, r *readRule) *node { return e.match(what, r.Match) },
	},
	field[readRule]{
		key: "when", unset: "none",
		doc: "a condition in CEL, for what `match` cannot say: `size(user_agent) > 0 && !(region in [\"eu\", \"uk\"])`; " +
			"there are `header[\"x\"]`, `cookie[\"x\"]`, `claim[\"x\"]`, `descriptor[\"x\"]`, `startsWith`, `endsWith`, `contains`, " +
			"`matches`, `size`, `number`, `lowerAscii`, `all` and `exists`, and an absent attribute is empty",
		schema: fmt.Sprintf(`"type": "string", "minLength": 1, "maxLength": %d`, maxConditionRunes),
		read:   func(d *decoder, n *node, key string, r *readRule) { r.When = d.condition(n, key) },
		write: func(e *encoder, what string, r *readRule) *node {
			if r.When.Holds != nil && r.When.Text == "" {
				e.bad(what, "a condition without its text cannot be written")
			}
			return e.text(what, r.When.Text)
		},
	},
	field[readRule]{
		key: "by", doc: "the [attributes](#attributes) that are counted by; `[]` is one counter for everybody", unset: "must be given",
		schema: `"anyOf": [{"$ref": "#/$defs/attribute"},
			{"type": "array", "items": {"$ref": "#/$defs/attribute"}, "uniqueItems": true}]`,
		read:  func(d *decoder, n *node, key string, r *readRule) { r.By = d.Texts(n, key) },
		write: func(e *encoder, what string, r *readRule) *node { return e.list(what, r.By) },
	},
	wordField("on_missing", "a request lacks an attribute of `by`: `share` a counter with all that do, `skip` the rule, `deny` the request",
		wordsOf(headgate.ShareMissing, headgate.SkipMissing, headgate.DenyMissing),
		func(r *readRule) *headgate.OnMissing { return &r.OnMissing }),
	limitField(func(r *readRule) *readPlan { return &r.own }).or("one must be given"),
	limitsField(func(r *readRule) *readPlan { return &r.own }).or("one must be given").judged("limit"),
	field[readRule]{
		key: "algorithm", judgedWith: "limit", unset: "`token_bucket`",
		doc: "how the rule's limits count where they do not say it themselves: `token_bucket`, `leaky_bucket`, `fixed_window`, " +
			"`sliding_window` (or `sliding_window_counter`), `sliding_log` (or `sliding_window_log`); quotas are always calendar windows",
		schema: `"$ref": "#/$defs/algorithm"`,
		read:   func(d *decoder, n *node, key string, r *readRule) { r.algorithm = d.algorithm(n, key) },
		write:  func(_ *encoder, _ string, r *readRule) *node { return wordNode(*r.algorithm) },
	},
	field[readRule]{
		key: "tiers", judgedWith: "limit", unset: "none",
		doc: "other limits by the request's `tier`, `{free: 100/minute}`, each in the place of the one of the same name; an unknown tier " +
			"has the rule's own",
		schema: `"type": "object", "additionalProperties": {"$ref": "#/$defs/plan"}`,
		read:   func(_ *decoder, n *node, _ string, r *readRule) { r.tiers = n },
		write:  func(e *encoder, what string, r *readRule) *node { return e.tiers(what, r.Tiers, r.like) },
	},
	valueField(field[readRule]{
		key: "max_caller_limit", judgedWith: "limit", unset: "they have no say",
		doc:    "lets callers bring a limit of their own, as [a descriptor of Envoy's may](gateways.md#envoy), up to this rate",
		schema: `"$ref": "#/$defs/rate"`,
	}, func(r *readRule) *headgate.Limit { return &r.MaxCallerLimit }, (*decoder).rateAlone, (*encoder).rate),
	field[readRule]{
		key: "candidate", judgedWith: "limit", unset: "none",
		doc:    "limits on trial: counted beside those of the same name, and they deny nothing",
		schema: `"$ref": "#/$defs/plan"`,
		read:   func(_ *decoder, n *node, _ string, r *readRule) { r.candidate = n },
		write:  func(e *encoder, what string, r *readRule) *node { return e.plan(what, r.Candidate, r.like) },
	},
	valueField(field[readRule]{
		key: "cost", doc: "how many units a request takes: a number, or `{from, default, min, max}` of an attribute", unset: "`1`",
		schema: `"$ref": "#/$defs/cost", "default": 1`,
	}, func(r *readRule) *headgate.Cost { return &r.Cost }, (*decoder).cost, (*encoder).cost),
	yesNoField("overdraw", "for costs that are told afterwards, as by Envoy's `apply_on_stream_done`: a request is denied if nothing is "+
		"left, and what it costs is recorded in any case, also beyond the limit", func(r *readRule) *bool { return &r.Overdraw }).judged("limit"),
	durationField("max_delay", "how long a `leaky_bucket` may make a request wait before it is denied",
		func(r *readRule) *time.Duration { return &r.MaxDelay }).judged("limit"),
	wholeField("priority", "above 0 the rule competes: of the matching rules with a priority that count by the same attributes only the "+
		"highest applies", 0, "", func(r *readRule) *int { return &r.Priority }).with(`"default": 0`).or("`0`"),
	wordField("mode", "what the rule may do: `enforce`, `shadow` (decides and counts, denies nothing), `off`", modeWords,
		func(r *readRule) *headgate.Mode { return &r.Mode }),
	wholeField("enforce_percent", "deny only for this share of the subjects, always the same ones, and be shadow for the others",
		1, "to deny nobody write mode: shadow, or a share of 1 to 100", func(r *readRule) *int { return &r.EnforcePercent }).
		with(`"maximum": 100`).or("`100`").judged("by"),
	wordField("on_store_failure", "while the store does not answer: `local` goes on with this node's share, `allow`, `deny`",
		wordsOf(headgate.FailLocal, headgate.FailAllow, headgate.FailDeny),
		func(r *readRule) *headgate.OnStoreFailure { return &r.OnStoreFailure }),
	yesNoField("strict", "decided by the store alone, never from what a node knows or holds in advance",
		func(r *readRule) *bool { return &r.Strict }),
	yesNoField("critical", "among the last to be decided without the store when that cannot answer all",
		func(r *readRule) *bool { return &r.Critical }),
	eitherField("expose", "whether clients are shown the limit in headers; one that denies is shown in any case, as `(hidden)`",
		headgate.ExposeAlways, headgate.ExposeNever, func(r *readRule) *headgate.Expose { return &r.Expose }).
		or("`true`, but `false` in shadow and with `by: []`"),
	yesNoField("meter", "add up what each subject uses by the day, [for billing](control-plane.md#usage-for-billing)",
		func(r *readRule) *bool { return &r.Meter }),
)

// modeWords are in the order of their values.
var modeWords = wordsOf(headgate.Enforce, headgate.Shadow, headgate.Off)

func wordsOf[T interface{ String() string }](values ...T) []string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.String()
	}
	return words
}

// readRule reads a rule, its limits included.
func (d *decoder) readRule(n *node) *readRule {
	r := &readRule{node: n, source: d.Number}
	d.In = textAt(n, "id")
	ruleKeys.read(d, n, "a rule", r)
	if e, ok := n.Get("by"); ok && r.By == nil && e.Value.Kind == yamldoc.Null {
		r.By = headgate.Global // the missing value is told already
	}
	d.readLimits(r)
	d.In = ""
	return r
}

// textAt is the text of a key, or "".
func textAt(n *node, key string) string {
	if e, ok := n.Get(key); ok && e.Value.Kind == yamldoc.Text {
		return e.Value.Text
	}
	return ""
}

func (d *decoder) labels(n *node, key string) map[string]string {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s wants names with values, {team: search}, not %s", key, n.Describe())
		return nil
	}
	labels := make(map[string]string, len(n.Entries))
	for _, e := range n.Entries {
		labels[e.Key.Text], _ = d.Text(e.Value, "label "+e.Key.Text)
	}
	return labels
}
