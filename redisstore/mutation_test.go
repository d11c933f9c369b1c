package redisstore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storetest"
)

// Two ways to break a comparison: negate it, or make it off by one.
var (
	opposite = map[string]string{"<=": ">", "<": ">=", ">=": "<", ">": "<=", "==": "~=", "~=": "=="}
	offByOne = map[string]string{"<=": "<", "<": "<=", ">=": ">", ">": ">="}
)

var (
	comparison = regexp.MustCompile(`<=|>=|==|~=|<|>`)
	// A clamp, a maximum or a minimum is the same with and without equality.
	clamp = regexp.MustCompile(`^(else)?if (.*?) [<>] (.*?) then (.*?) = .* end$|(\w+) [<>] (\w+) and (\w+) or (\w+)|^if at > 1 then`)
)

// equivalent are mutants that change no decision, with the reason.
var equivalent = map[string]string{
	"if elapsed >= 0 then": "nothing drains in zero time",

	// Texts consist of records of one size, and positions are one more than a multiple of it.
	"if at >= #log.chunks then return log.newest end": "records",
	"if from >= #text then return 0 end":              "records",
	"if marks[mark] and at <= #log.chunks then":       "records",
	"if #found >= from then":                          "records",
	"if endAt <= #found then":                         "records",

	// The clock is set back after a charge at the very start of a window; region.scenario covers it.
	"if minOrMark ~= 0 and (op <= 2 and now > minOrMark or op > 2 and (minOrMark ~= (start or time) or start and time > stop)) then": "rare",

	// A window ends with an aligned one of another length; change.scenario covers it.
	"if time - p2 + into + expires * 1000000 < 2 * time then time = time - p2 end": "rare",

	// They need more entries and holds than a comparison has; Many of TestSuite covers them.
	"elseif log.entries > maxEntries then": "many entries",

	"if t2 == t or log.entries > mergeFrom then entry, rest, entries = encode('<I7I4', t2, more + units), from + 11, 0 end": "many entries",
	"local fits = op > 0 and available >= minOrMark and (span ~= 0 or holds < 100000)":                                      "many holds",
	"local fits = op > 0 and available >= minOrMark and (span == 0 or holds <= 100000)":                                     "many holds",

	// The number of entries in a chunk is not visible outside.
	"if #log.newest > chunkSize * 11 then seal(log) end": "chunks",
	"if #log.chunks <= maxChunks * 15 then":              "chunks",
	"if #log.chunks >= maxChunks * 15 then":              "chunks",
	"if count1 + count2 > chunkSize then":                "chunks",
	"if count1 + count2 < chunkSize then":                "chunks",

	// A credit that takes one entry too many puts it back, and reads chunks that it need not.
	"while from > 1 and given <= maxUnits do":                 "credit",
	"while from ~= 1 and entry == '' and log.chunks ~= '' do": "credit",
	"while from == 1 and entry ~= '' and log.chunks ~= '' do": "credit",
	"if given + total >= maxUnits then break end":             "credit",

	"if marks[mark] and marks[mark] <= last then":     "no entry to split",
	"if op == 7 and not fits and minOrMark < p1 then": "a charge of the whole log waits for its newest entry, which is always in the reply",

	"elseif op == 1 and prev >= 0 then": "zero units given back are stored, in a few more bytes",

	// They find an end that no charge uses.
	"if span >= 0 and kind < 2 then":    "no hold",
	"if span > 0 and kind <= 2 then":    "no hold",
	"if ending >= 0 and holds > 0 then": "no hold",

	// Calls with one charge may use the tables and functions of others.
	"if n >= 1 then":                        "one charge",
	"if spans and (n >= 1 or ARGV[3]) then": "one charge",

	// Both forms of the reply lead to the same results.
	"if reports and #found > 18 + wholeReply * 26 then": "reply",
	"if reports and #found < 18 + wholeReply * 26 then": "reply",

	// Holders of a concurrency limit.
	"elseif soonest ~= 0 or t < soonest then":                                "every call looks for expired holders",
	"elseif soonest == 0 or t <= soonest then":                               "a minimum",
	"local count, entries, seen = 0, '', n >= i and {[id] = true}":           "a table without use",
	"local full, added = not own and #text > 18 + maxHolders * 26, maxUnits": "many holders; TestSuite covers it",
	"added = maxUnits <= holderUnits and -maxUnits or -holderUnits":          "a minimum",
	"if own and own >= 19 then":                                              "sub returns nothing",

	// They change how the TTL is determined, not its value.
	"if pass ~= 1 and first == i and expires > (foundExpiry[key] or 0) then foundExpiry[key] = expires end":  "Redis knows the TTL",
	"if pass == 1 and first == i and expires <= (foundExpiry[key] or 0) then foundExpiry[key] = expires end": "Redis knows the TTL",
	"if before >= 0 or addedField then call('PEXPIREAT', key, text, 'GT') end":                               "sets the same TTL again",
	"if before + 7 - (before + 7) % 8 <= ttl then":                                                           "sets the same TTL again",

	// Sweeping changes no decision; TestLifetimes and TestHoldsBalance cover it.
	"local sweep = addedField or (turn ~= 0 or turn < newHolds) and k == 1 + (now - turn) / 16 % #keys":         "sweeping",
	"local sweep = addedField or (turn == 0 or turn >= newHolds) and k == 1 + (now - turn) / 16 % #keys":        "sweeping",
	"local sweep = addedField or (turn == 0 or turn <= newHolds) and k == 1 + (now - turn) / 16 % #keys":        "sweeping",
	"local sweep = addedField or (turn == 0 or turn < newHolds) and k ~= 1 + (now - turn) / 16 % #keys":         "sweeping",
	"if sweep and not swept and call('HLEN', key) <= size then":                                                 "sweeping",
	"if sweep and not swept and call('HLEN', key) >= size then":                                                 "sweeping",
	"local sampled, expired = call('HRANDFIELD', key, round ~= 1 and 4 or 32 + 2 * newHolds, 'WITHVALUES'), {}": "sweeping",
	"if decode('<I4', value) * 1000000 < now then expired[#expired + 1] = field end":                            "sweeping",
}

// TestMutations breaks one comparison of the script after the other, and expects the comparison with the specification, or
// the check of TTLs, to detect each. Under the race detector it tries only some of them: mutants have nothing to do with
// races.
func TestMutations(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server := testenv.Start(t, testenv.Redis) // broken scripts may leave keys without a TTL
	killEndlessScripts(t, server)
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
				if testenv.Race() && rand.IntN(6) > 0 {
					continue
				}
				t.Run(fmt.Sprintf("line %d column %d %s", number+1, at[0], kind), func(t *testing.T) {
					expectCaught(t, server, fmt.Sprintf("m%d-%d%c", number, at[0], kind[1]), number, line[:at[0]]+turned+line[at[1]:])
				})
			}
		}
	}
	if mutants < 80 {
		t.Errorf("only %d mutants found in the script", mutants)
	}
}

// killEndlessScripts kills scripts that a mutation has made endless.
func killEndlessScripts(t *testing.T, server *testenv.Server) {
	server.Must(t, "CONFIG", "SET", "busy-reply-threshold", "200")
	done := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(done)
		running.Wait()
	})
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				_, _ = server.Do("SCRIPT", "KILL") // usually none is running
			}
		}
	})
}

func expectCaught(t *testing.T, server *testenv.Server, namespace string, number int, mutant string) {
	lines := strings.Split(takeText, "\n")
	line := lines[number]
	mutate := func(text string) string {
		changed := strings.Split(text, "\n")
		changed[number] = strings.Replace(changed[number], line, mutant, 1)
		return strings.Join(changed, "\n")
	}
	var targets [2]storetest.Target // with normal sizes, and with small ones
	compare := func(small int, c storetest.Comparison) error {
		if targets[small].Store == nil {
			targets[small] = openWithClock(t, standalone(server), fmt.Sprintf("%s-%d", namespace, small), func(text string) string {
				if small > 0 {
					text = smallChunks(t, text)
				}
				return mutate(text)
			})
		}
		return storetest.Compare(targets[small], c)
	}
	why, known := equivalent[strings.TrimSpace(mutant)]
	rounds, charges := 4, 1000
	if known {
		rounds, charges = 1, 250
	}
	var caught error
	for round := range rounds {
		for a := headgate.Concurrency; a <= headgate.Concurrency; a-- { // unsigned: it wraps. Those with the most code come first
			c := storetest.Comparison{Charges: charges << (2 * round), Seed: uint64(round*6) + uint64(a), Algorithm: a}
			if caught == nil && a >= headgate.SlidingLog {
				caught = compare(1, c)
				if c.Narrow = true; caught == nil {
					caught = compare(1, c)
				}
				c.Narrow = false
			}
			if caught == nil {
				caught = compare(0, c)
			}
		}
	}
	if caught == nil {
		caught = shortTTL(t, server, namespace+"-?")
	}
	switch {
	case caught == nil && !known:
		t.Errorf("not detected:\n\t%s\ninstead of\n\t%s", strings.TrimSpace(mutant), strings.TrimSpace(line))
	case caught != nil && known:
		t.Errorf("listed as equivalent (%s), but:\n%s\n%v", why, mutant, caught)
	}
}

// smallChunks makes the script use chunks of two entries, so that a short comparison has many of them, and not reply with all holders of
// a concurrency limit.
func smallChunks(t testing.TB, text string) string {
	for usual, small := range map[string]string{
		"chunkSize, maxChunks, mergeFrom, maxEntries = 128, 160,": "chunkSize, maxChunks, mergeFrom, maxEntries = 2, 2,",
		"maxHolders, wholeReply, find = 1000, 8,":                 "maxHolders, wholeReply, find = 1000, 0,",
	} {
		if !strings.Contains(text, usual) {
			t.Fatalf("the script has no line with %s", usual)
		}
		text = strings.Replace(text, usual, small, 1)
	}
	return text
}

// shortTTL returns an error if a key of a namespace may expire before all its fields have.
func shortTTL(t testing.TB, server *testenv.Server, namespace string) error {
	keys, _ := server.Must(t, "KEYS", format+":"+namespace+":??????????????????????").([]any)
	for _, k := range keys {
		key, _ := k.(string)
		until, _ := server.Must(t, "PEXPIRETIME", key).(int64)
		all, _ := server.Must(t, "HGETALL", key).([]any)
		for i := 0; i < len(all); i += 2 {
			field, _ := all[i].(string)
			value, _ := all[i+1].(string)
			if len(field) > 6 && field[6] == 'l' {
				continue // a chunk lives as long as its log
			}
			if expires := int64(binary.LittleEndian.Uint32([]byte(value))); until < expires*1000 {
				return fmt.Errorf("%s expires at %d ms, one of its fields at %d s", key, until, expires)
			}
		}
	}
	return nil
}

// withoutStrings blanks string literals, which may look like comparisons.
func withoutStrings(code string) string {
	return regexp.MustCompile(`'[^']*'`).ReplaceAllStringFunc(code, func(s string) string { return strings.Repeat(" ", len(s)) })
}
