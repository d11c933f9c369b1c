package ruledoc

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// parsedRule is a rule with the state that only decoding and encoding need.
type parsedRule struct {
	headgate.Rule
	node   *node
	source int
	// Limits are decoded after all other keys, because the rule's algorithm may come after them.
	algorithm        *headgate.Algorithm
	own              parsedPlan
	tiers, candidate *node
}

var ruleKeys = newObject(
	textField("id", "unique name of the rule in decisions, headers, logs and counter keys: letters, digits and `-_.:/`; renaming the "+
		"rule or one of its limits resets the counters", func(r *parsedRule) *string { return &r.ID }).
		withSchema(`"minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.:/-]+$"`).withDefault("required"),
	textField("description", "free text for people", func(r *parsedRule) *string { return &r.Description }),
	field[parsedRule]{
		key: "labels", doc: "free-form labels for people and tools: `{team: search}`", unset: "none",
		schema: `"type": "object", "additionalProperties": {"type": "string"}`,
		read:   func(d *decoder, n *node, key string, r *parsedRule) { r.Labels = d.labels(n, key) },
		write:  func(e *encoder, what string, r *parsedRule) *node { return e.texts(what, r.Labels) },
	},
	field[parsedRule]{
		key: "match", doc: "requests that the rule applies to, [by their attributes](#match-and-when); all conditions must hold", unset: "all requests",
		schema: `"$ref": "#/$defs/match"`,
		read:   func(d *decoder, n *node, key string, r *parsedRule) { r.Match = d.match(n, key) },
		write:  func(e *encoder, what string, r *parsedRule) *node { return e.match(what, r.Match) },
	},
	field[parsedRule]{
		key: "when", unset: "none",
		doc: "CEL condition for requests that `match` cannot select: `size(user_agent) > 0 && !(region in [\"eu\", \"uk\"])`; " +
			"available are `header[\"x\"]`, `cookie[\"x\"]`, `claim[\"x\"]`, `descriptor[\"x\"]`, `startsWith`, `endsWith`, `contains`, " +
			"`matches`, `size`, `number`, `lowerAscii`, `all` and `exists`; an absent attribute is the empty string",
		schema: fmt.Sprintf(`"type": "string", "minLength": 1, "maxLength": %d`, maxConditionRunes),
		read:   func(d *decoder, n *node, key string, r *parsedRule) { r.When = d.condition(n, key) },
		write: func(e *encoder, what string, r *parsedRule) *node {
			if r.When.Holds != nil && r.When.Text == "" {
				e.bad(what, "the condition has no CEL text and cannot be encoded")
			}
			return e.text(what, r.When.Text)
		},
	},
	textField("counter", "`id` of another rule: this rule charges [the counters of that rule](cookbook.md#charge-several-rules-to-one-budget) at its own `cost`, and has no "+
		"other keys than `id`, `description`, `labels`, `match`, `when`, `cost`, `costs` and `mode` (`enforce` or `off`)",
		func(r *parsedRule) *string { return &r.Counter }).
		withSchema(`"minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.:/-]+$"`).withDefault("its own"),
	field[parsedRule]{
		key: "by", unset: "required without `counter`",
		doc: "[attributes](#attributes) that identify a subject: each combination of their values has its own counters; `[]` is one " +
			"counter for all requests",
		schema: `"anyOf": [{"$ref": "#/$defs/attribute"},
			{"type": "array", "items": {"$ref": "#/$defs/attribute"}, "uniqueItems": true}]`,
		read: func(d *decoder, n *node, key string, r *parsedRule) { r.By = d.Texts(n, key) },
		write: func(e *encoder, what string, r *parsedRule) *node {
			if r.By == nil {
				return nil
			}
			return e.list(what, r.By)
		},
	},
	enumField("on_missing", "if a request lacks an attribute of `by`: `share` one counter among all such requests, `skip` the rule, "+
		"or `deny` the request",
		namesOf(headgate.ShareMissing, headgate.SkipMissing, headgate.DenyMissing),
		func(r *parsedRule) *headgate.OnMissing { return &r.OnMissing }),
	limitField(func(r *parsedRule) *parsedPlan { return &r.own }).withDefault("`limit` or `limits` required without `counter`"),
	limitsField(func(r *parsedRule) *parsedPlan { return &r.own }).withDefault("`limit` or `limits` required without `counter`").inGroup("limit"),
	field[parsedRule]{
		key: "algorithm", group: "limit", unset: "`token_bucket`",
		doc: "algorithm of the rule's limits that do not set their own: `token_bucket`, `leaky_bucket`, `fixed_window`, " +
			"`sliding_window` (or `sliding_window_counter`), `sliding_log` (or `sliding_window_log`); quotas and concurrency limits do not use it",
		schema: `"$ref": "#/$defs/algorithm"`,
		read:   func(d *decoder, n *node, key string, r *parsedRule) { r.algorithm = d.algorithm(n, key) },
		write:  func(_ *encoder, _ string, r *parsedRule) *node { return enumNode(*r.algorithm) },
	},
	field[parsedRule]{
		key: "tiers", group: "limit", unset: "none",
		doc: "limits by the request's `tier`: `{free: 100/minute}`; each replaces the rule's limit of the same name; requests of an unknown " +
			"tier use the rule's own limits",
		schema: `"type": "object", "additionalProperties": {"$ref": "#/$defs/plan"}`,
		read:   func(_ *decoder, n *node, _ string, r *parsedRule) { r.tiers = n },
		write:  func(e *encoder, what string, r *parsedRule) *node { return e.tiers(what, r.Tiers, r.defaults) },
	},
	valueField(field[parsedRule]{
		key: "max_caller_limit", group: "limit", unset: "callers cannot set a limit",
		doc:    "allows callers to set their own limit, as [an Envoy descriptor can](gateways.md#envoy), up to this rate",
		schema: `"$ref": "#/$defs/rate"`,
	}, func(r *parsedRule) *headgate.Limit { return &r.MaxCallerLimit }, (*decoder).rateAlone, (*encoder).rate),
	field[parsedRule]{
		key: "candidate", group: "limit", unset: "none",
		doc:    "candidate limits: counted alongside the rule's limits of the same name, but never deny a request",
		schema: `"$ref": "#/$defs/plan"`,
		read:   func(_ *decoder, n *node, _ string, r *parsedRule) { r.candidate = n },
		write:  func(e *encoder, what string, r *parsedRule) *node { return e.plan(what, r.Candidate, r.defaults) },
	},
	valueField(field[parsedRule]{
		key: "cost", doc: "units that a request is charged: a number, or `{from, default, min, max}` to read it from an attribute", unset: "`1`",
		schema: `"$ref": "#/$defs/cost", "default": 1`,
	}, func(r *parsedRule) *headgate.Cost { return &r.Cost }, (*decoder).cost, (*encoder).cost),
	listField("costs", "cost table: the first entry that matches a request replaces `cost`; if the path or method is ambiguous, the highest cost counts",
		"cost_entry", func(r *parsedRule, d *decoder, item *node) { r.Costs = append(r.Costs, d.costEntry(item)) },
		func(e *encoder, r *parsedRule) *node {
			if len(r.Costs) == 0 {
				return nil
			}
			return listOf(e, r.Costs, func(e *encoder, c headgate.CostEntry) *node { return costEntryKeys.write(e, "costs", &c) })
		}),
	boolField("overdraw", "for costs that are reported after the request, as with Envoy's `apply_on_stream_done`: a request is denied if "+
		"nothing remains, and its cost is always recorded in full, even over the limit", func(r *parsedRule) *bool { return &r.Overdraw }).inGroup("limit"),
	durationField("max_delay", "longest time that a `leaky_bucket` may delay a request instead of denying it",
		func(r *parsedRule) *time.Duration { return &r.MaxDelay }).inGroup("limit"),
	intField("priority", "above 0, the rule competes: of the matching rules that have a priority and the same `by`, only the one with the "+
		"highest priority applies", 0, "", func(r *parsedRule) *int { return &r.Priority }).withSchema(`"default": 0`).withDefault("`0`"),
	enumField("mode", "`enforce`, `shadow` (decides and counts, but never denies) or `off`", modeNames,
		func(r *parsedRule) *headgate.Mode { return &r.Mode }),
	intField("enforce_percent", "percentage of subjects for which the rule is enforced, always the same ones; it is in shadow mode for the others",
		1, "must be 1 to 100; to deny no request, use mode: shadow", func(r *parsedRule) *int { return &r.EnforcePercent }).
		withSchema(`"maximum": 100`).withDefault("`100`").inGroup("by"),
	enumField("regions", "if servers of [several regions](config.md#regions) decide requests: `each` region applies the limits on its own, they are `shared` "+
		"by all regions together, each with a share of every limit, or each subject is counted in its [`home`](config.md#homes), one of the regions",
		namesOf(headgate.EachRegion, headgate.SharedRegions, headgate.HomeRegion), func(r *parsedRule) *headgate.Regions { return &r.Regions }),
	enumField("on_store_failure", "decisions while the store is unavailable: `local` enforces this node's share of the limits, `allow` "+
		"allows and `deny` denies all requests",
		namesOf(headgate.FailLocal, headgate.FailAllow, headgate.FailDeny),
		func(r *parsedRule) *headgate.OnStoreFailure { return &r.OnStoreFailure }),
	enumField("on_hold_expiry", "if a [reservation](service.md#costs-known-only-afterwards) is never committed, as when its node was killed: "+
		"`release` its units, or `charge` them as if they had been used, so that a budget is never exceeded; a `leaky_bucket` or `sliding_log` always charges them",
		namesOf(headgate.ReleaseHold, headgate.ChargeHold), func(r *parsedRule) *headgate.OnHoldExpiry { return &r.OnHoldExpiry }),
	boolField("strict", "decide only in the store, never from cached denials or leases on a node",
		func(r *parsedRule) *bool { return &r.Strict }),
	boolField("critical", "if the store is overloaded, requests of this rule are among the last to be decided without it",
		func(r *parsedRule) *bool { return &r.Critical }),
	optionalBoolField("expose", "whether headers show the limit to clients; a limit that is not exposed is still shown when it denies a request, under the name `(hidden)`",
		headgate.ExposeAlways, headgate.ExposeNever, func(r *parsedRule) *headgate.Expose { return &r.Expose }).
		withDefault("`true`; `false` in shadow mode and with `by: []`"),
	boolField("meter", "record the daily usage of each subject, [for billing](control-plane.md#usage-for-billing)",
		func(r *parsedRule) *bool { return &r.Meter }),
)

// modeNames are in the order of their values.
var modeNames = namesOf(headgate.Enforce, headgate.Shadow, headgate.Off)

// namesOf returns the String of each value.
func namesOf[T interface{ String() string }](values ...T) []string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.String()
	}
	return words
}

// parseRule decodes a rule with its limits.
func (d *decoder) parseRule(n *node) *parsedRule {
	r := &parsedRule{node: n, source: d.Number}
	d.In = textAt(n, "id")
	ruleKeys.read(d, n, "a rule", r)
	if e, ok := n.Get("by"); ok && r.By == nil && e.Value.Kind == yamldoc.Null {
		r.By = headgate.Global // the missing value is already reported
	}
	if e, ok := n.Get("counter"); ok {
		if r.Counter == "" && r.By == nil {
			r.By = headgate.Global // it may be missing only because counter is invalid, which is reported
		}
		d.checkBorrower(n, r, e)
	}
	d.readLimits(r)
	d.In = ""
	return r
}

// borrowerKeys are the keys of a rule with counter. All other keys belong to the rule whose counters it charges.
var borrowerKeys = []string{"id", "description", "labels", "match", "when", "counter", "cost", "costs", "mode"}

// checkBorrower reports the keys that a rule with counter cannot have, even if their values are the defaults.
func (d *decoder) checkBorrower(n *node, r *parsedRule, counter entry) {
	if r.Counter == "" {
		if counter.Value.Kind == yamldoc.Text {
			d.Bad(counter.Value, "counter: must not be empty: write the id of another rule, or remove the key")
		}
		return
	}
	for _, e := range n.Entries {
		if ruleKeys.field(e.Key.Text) != nil && !slices.Contains(borrowerKeys, e.Key.Text) {
			d.Bad(e.Key, "%s: belongs to rule %q, whose counters this rule charges: remove it", e.Key.Text, yamldoc.Shorten(r.Counter))
		}
	}
}

// textAt returns the text of a key, or "".
func textAt(n *node, key string) string {
	if e, ok := n.Get(key); ok && e.Value.Kind == yamldoc.Text {
		return e.Value.Text
	}
	return ""
}

func (d *decoder) labels(n *node, key string) map[string]string {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s: must map names to values, like {team: search}, not %s", key, n.Describe())
		return nil
	}
	labels := make(map[string]string, len(n.Entries))
	for _, e := range n.Entries {
		labels[e.Key.Text], _ = d.Text(e.Value, "label "+strconv.Quote(e.Key.Text))
	}
	return labels
}
