package redisstore

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storetest"
)

// Two ways to break a comparison: take it for its opposite, or be off by one.
var (
	opposite = map[string]string{"<=": ">", "<": ">=", ">=": "<", ">": "<=", "==": "~=", "~=": "=="}
	offByOne = map[string]string{"<=": "<", "<": "<=", ">=": ">", ">": ">="}
)

var (
	comparison = regexp.MustCompile(`<=|>=|==|~=|<|>`)
	// A bound, a maximum or a minimum is the same whichever side equality falls on.
	clamp = regexp.MustCompile(`^(else)?if (.*?) [<>] (.*?) then (.*?) = .* end$|(\w+) [<>] (\w+) and (\w+) or (\w+)|^if at > 1 then`)
)

// equivalent mutants change no decision, for a reason.
var equivalent = map[string]string{
	"if elapsed >= 0 then":    "nothing drains in no time",
	"while at <= #entries do": "entries are 11 bytes each, and at is one more than a multiple of that",

	"local kept = units >= back and encode('<I7I4', t, units - back) or ''": "an entry of no units counts nothing",

	"elseif op == 1 and (prev >= 0 or holds ~= '') then": "nothing given back is stored as such, in seven bytes more",

	"while at <= #holds do": "holds are 11 bytes each too",

	// It takes a thousand of them; Many of TestSuite looks after these.
	"local fits = op > 0 and room >= least and (span ~= 0 or #holds < 11000)":  "many holds",
	"local fits = op > 0 and room >= least and (span == 0 or #holds <= 11000)": "many holds",
	"elseif #entries > 11000 then":                                             "many forced charges",

	"if t == at or #entries > 11000 then at, more, newer = t, last + units, sub(newer, 12) end": "many forced charges",

	"if from < #entries then": "entries are 11 bytes each, and from is one more than a multiple of that",

	// How the TTL is found out, not what it is.
	"if not states[first] and expires <= (known[key] or 0) then known[key] = expires end": "it is read from the server",
	"if before <= expires * 1000 then call('PEXPIREAT', key, expires .. '000') end":       "sets what is set",
	"elseif expires >= known[k] then":                                                     "sets what is set",

	// When to sweep decides nothing; TestLifetimes looks after it.
	"if before <= 0 or now % 16 == 0 then": "sweeping",
	"if before >= 0 or now % 16 == 0 then": "sweeping",
	"if before > 0 or now % 16 ~= 0 then":  "sweeping",
	"if size <= #args / 2 then":            "sweeping",
	"if size >= #args / 2 then":            "sweeping",

	"local all = size > 256 and call('HGETALL', key) or call('HRANDFIELD', key, 64, 'WITHVALUES')": "sweeping",
	"local all = size < 256 and call('HGETALL', key) or call('HRANDFIELD', key, 64, 'WITHVALUES')": "sweeping",
	"if decode('<I4', all[i + 1], 15) * 1000000 < now then lapsed[#lapsed + 1] = all[i] end":       "sweeping",
}

// TestMutations breaks the script in one comparison after the other and expects the comparison with the specification,
// or a look at the keys' TTLs, to notice each.
func TestMutations(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis) // broken scripts may leave anything
	mutants := 0
	for number, line := range strings.Split(takeText, "\n") {
		code, _, _ := strings.Cut(line, "--")
		for _, at := range comparison.FindAllStringIndex(withoutStrings(code), -1) {
			old := line[at[0]:at[1]]
			for kind, turned := range map[string]string{"opposite": opposite[old], "off by one": offByOne[old]} {
				if turned == "" || kind == "off by one" && clamp.MatchString(strings.TrimSpace(code)) {
					continue
				}
				mutants++
				t.Run(fmt.Sprintf("line %d column %d %s", number+1, at[0], kind), func(t *testing.T) {
					expectCaught(t, server, fmt.Sprintf("m%d-%d%c", number, at[0], kind[1]), line, line[:at[0]]+turned+line[at[1]:])
				})
			}
		}
	}
	if mutants < 80 {
		t.Errorf("only %d mutants found in the script", mutants)
	}
}

func expectCaught(t *testing.T, server *testenv.Server, namespace, line, mutant string) {
	target := openWithClock(t, standalone(server), namespace, func(text string) string {
		return strings.Replace(text, line, mutant, 1)
	})
	why, known := equivalent[strings.TrimSpace(mutant)]
	rounds := 4
	if known {
		rounds = 1
	}
	var caught error
	for round := range rounds {
		for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
			if caught == nil {
				caught = storetest.Compare(target, storetest.Comparison{Charges: 1000 << (2 * round), Seed: uint64(round*5) + uint64(a), Algorithm: a})
			}
		}
	}
	if caught == nil {
		caught = shortTTL(t, server, namespace)
	}
	switch {
	case caught == nil && !known:
		t.Errorf("nobody noticed\n\t%s\nin place of\n\t%s", strings.TrimSpace(mutant), strings.TrimSpace(line))
	case caught != nil && known:
		t.Errorf("listed as equivalent (%s), but:\n%s\n%v", why, mutant, caught)
	}
}

// shortTTL is an error if some key of a namespace may vanish before all its fields have expired.
func shortTTL(t testing.TB, server *testenv.Server, namespace string) error {
	keys, _ := server.Must(t, "KEYS", format+":"+namespace+":??????????????????????").([]any)
	for _, k := range keys {
		key, _ := k.(string)
		until, _ := server.Must(t, "PEXPIRETIME", key).(int64)
		values, _ := server.Must(t, "HVALS", key).([]any)
		for _, v := range values {
			state, _ := v.(string)
			if expires := int64(binary.LittleEndian.Uint32([]byte(state[14:]))); until < expires*1000 {
				return fmt.Errorf("%s lives until %d ms, a field of it until %d s", key, until, expires)
			}
		}
	}
	return nil
}

// withoutStrings blanks string literals: what looks like a comparison in them is none.
func withoutStrings(code string) string {
	return regexp.MustCompile(`'[^']*'`).ReplaceAllStringFunc(code, func(s string) string { return strings.Repeat(" ", len(s)) })
}
