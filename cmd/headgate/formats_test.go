package main

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// record is the version under which TestStoredFormats writes what this tree stores. "make fixture" sets it, for a release.
var record = flag.String("record", "", "write testdata/formats/`VERSION` instead of reading all versions")

// Each release has a directory under testdata/formats: redis.json, postgres.sql, tokens, the last good files of a server with rules
// in PostgreSQL and of one with rules in files, and expected.json, which is what its servers decided. All later versions must read
// them and decide the same. They are never changed.
const formatsDir = "testdata/formats"

// formatsRules use every algorithm and everything else that is stored. Refills are slow, so that the seconds between recording
// and reading change nothing.
const formatsRules = `rules:
  - {id: token-bucket, by: [user], limit: 24/day}
  - {id: leaky-bucket, by: [user], limit: 24/day, algorithm: leaky_bucket}
  - {id: fixed-window, by: [user], limit: 100/day, algorithm: fixed_window}
  - {id: month, by: [user], limit: {quota: 1000, calendar: month, timezone: Europe/Berlin}}
  - {id: sliding-window, by: [user], limit: 100/day, algorithm: sliding_window}
  - {id: sliding-log, by: [user], limit: 100/day, algorithm: sliding_log}
  - {id: two-limits, by: [user], limits: {day: 50/day, week: 100/7d}}
  - {id: by-key, by: [api_key], limit: 24/day}
  - {id: raised, by: [user], limit: 1/day}
  - {id: exempted, by: [user], limit: 1/day}
  - {id: used-up, by: [user], limit: 3/day}
  - {id: reserved, by: [user], limit: 100/day, algorithm: fixed_window}
  - {id: in-flight, by: [user], limit: {concurrent: 5, lease: 1h}}
  - {id: metered, by: [tenant], limit: 100/day, meter: true}
`

// formatsCharges are the units that recording charges by rule. The others are charged in ways of their own.
var formatsCharges = map[string]int{
	"token-bucket": 10, "leaky-bucket": 1, "fixed-window": 33, "month": 123, "sliding-window": 44, "sliding-log": 5, "two-limits": 20,
	"by-key": 4, "raised": 20, "used-up": 3, "metered": 9,
}

// formatsExpected is what the recording servers decided, and what is needed to repeat it.
type formatsExpected struct {
	Time        time.Time        `json:"time"` // of Redis
	Remaining   map[string]int64 `json:"remaining"`
	Reservation string           `json:"reservation"` // of 30 units
	AdminToken  string           `json:"admin_token"` // its hash is in the file tokens
	ViewerToken string           `json:"viewer_token"`
}

// redisKey is a key of redis.json. Binary data is in hexadecimal.
type redisKey struct {
	Type    string            `json:"type"`
	Expires int64             `json:"expires_ms"` // Unix milliseconds
	Value   string            `json:"value,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"` // of a hash; of a sorted set, scores by member
}

// TestStoredFormats starts servers on what each release has stored in Redis, in PostgreSQL and on disk.
func TestStoredFormats(t *testing.T) {
	if *record != "" {
		recordFormats(t, filepath.Join(formatsDir, *record))
		return
	}
	all, err := os.ReadDir(formatsDir)
	testenv.NoError(t, err)
	if len(all) == 0 {
		t.Fatal("no version in " + formatsDir)
	}
	for _, version := range all {
		t.Run(version.Name(), func(t *testing.T) {
			t.Parallel()
			readFormats(t, filepath.Join(formatsDir, version.Name()))
		})
	}
}

// formats is a server with all its stores.
type formats struct {
	*controlPlane
	redis  *testenv.Server
	config string
}

// startFormats starts Redis and PostgreSQL with a server's config. tokens is the tokens file.
func startFormats(t *testing.T, tokens string) *formats {
	t.Helper()
	f := &formats{controlPlane: &controlPlane{t: t, dir: t.TempDir(), postgres: testenv.StartPostgres(t)}, redis: testenv.StartFaked(t, testenv.Redis)}
	f.config = f.file("config.yaml", anyPorts+fmt.Sprintf(
		"redis: {address: redis://%s, deadline: 1s}\npostgres: {address: %q}\nlast_good_file: last_good_file\nadmin: {tokens_file: tokens}\n", f.redis.Addr(), f.postgres.URL()))
	f.file("tokens", tokens)
	return f
}

// serveFiles runs a server with rules in files, which may be missing, until its rules are in use.
func (f *formats) serveFiles(lastGoodFile string) {
	f.t.Helper()
	config := f.file("files.yaml", anyPorts+fmt.Sprintf("redis: {address: redis://%s}\nrules: rules.yaml\nlast_good_file: %s\n", f.redis.Addr(), lastGoodFile))
	r := serve(f.t, "--config", config)
	if status, ready := r.ready(); status != http.StatusOK || ready.Rules.Version == "" {
		f.t.Errorf("rules in files: %d %+v", status, ready)
	}
	r.stop()
	<-r.done
}

// serve starts a server whose admin API is called with a token.
func (f *formats) serve(token string) {
	f.t.Helper()
	f.testServer = serve(f.t, "--config", f.config)
	f.args = []string{"--server", "http://" + f.addressOf("admin"), "--token-file", f.file("token", token)}
	f.waitForLog(redisConnected)
}

// post sends a call of the check API for a rule and returns the response.
func (f *formats) post(path, rule, more string) map[string]any {
	f.t.Helper()
	body := fmt.Sprintf(`{"rule": %q, "attributes": {"user": "ann", "tenant": "acme", "api_key": "key-of-ann"}%s}`, rule, more)
	status, text := send(f.t, http.MethodPost, "http://"+f.addressOf("http")+path, body)
	var response map[string]any
	if err := json.Unmarshal([]byte(text), &response); err != nil || status != http.StatusOK {
		f.t.Fatalf("%s %s: %d %s", path, body, status, text)
	}
	return response
}

// wantAllowed sends a call and checks whether it is allowed.
func (f *formats) wantAllowed(want bool, path, rule, more string) map[string]any {
	f.t.Helper()
	response := f.post(path, rule, more)
	if response["allowed"] != want {
		f.t.Errorf("%s of %s%s: %v", path, rule, more, response)
	}
	return response
}

// remaining returns the remaining units of all rules that have counters.
func (f *formats) remaining() map[string]int64 {
	f.t.Helper()
	all := map[string]int64{"reserved": 0}
	for rule := range formatsCharges {
		all[rule] = 0
	}
	for rule := range all {
		n, ok := f.post("/v1/peek", rule, "")["remaining"].(float64)
		if !ok {
			f.t.Fatalf("%s: no remaining units", rule)
		}
		all[rule] = int64(n)
	}
	return all
}

func (f *formats) now() time.Time {
	f.t.Helper()
	reply, ok := f.redis.Must(f.t, "TIME").([]any)
	if !ok || len(reply) != 2 {
		f.t.Fatal(reply)
	}
	seconds, err := strconv.ParseInt(fmt.Sprint(reply[0]), 10, 64)
	testenv.NoError(f.t, err)
	return time.Unix(seconds, 0).UTC()
}

func recordFormats(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		t.Fatalf("%s exists: what a release has stored does not change", dir)
	}
	token := startJSON[tokenReport](t, 0, "token", "create", "ann", "--role", "admin")
	f := startFormats(t, token.Line)
	startJSON[migrateReport](t, 0, "migrate", "--config", f.config)
	f.serve(token.Token)
	operateJSON[planReport](f.controlPlane, 0, "rules", "apply", f.file("rules.yaml", formatsRules), "--yes")
	f.do(0, "", "override", "set", "raised", "user=ann", "50/day")
	f.do(0, "", "exempt", "add", "exempted", "--user", "ann")
	viewer := operateJSON[tokenReport](f.controlPlane, 0, "token", "create", "bob", "--role", "viewer")
	eventually(t, "rules", func() bool { status, _ := f.ready(); return status == http.StatusOK })
	eventually(t, "the override and the exemption", func() bool {
		return f.post("/v1/peek", "raised", "")["remaining"] == 50. && f.post("/v1/peek", "exempted", "")["remaining"] != 1.
	})
	for rule, units := range formatsCharges {
		for range units {
			f.wantAllowed(true, "/v1/check", rule, "")
		}
	}
	f.wantAllowed(false, "/v1/check", "used-up", "")
	reservation, ok := f.wantAllowed(true, "/v1/reserve", "reserved", `, "cost": 30, "hold": 3600`)["reservation"].(string)
	if !ok {
		t.Fatal("no reservation")
	}
	for range 3 {
		f.wantAllowed(true, "/v1/check", "in-flight", `, "begin": true`)
	}
	expected := formatsExpected{
		Time: f.now(), Remaining: f.remaining(), Reservation: reservation, AdminToken: token.Token, ViewerToken: viewer.Token,
	}
	keys := f.dumpRedis()
	f.stop()
	<-f.done // writes usage_daily
	f.serveFiles("last_good_file_of_files")
	if t.Failed() {
		return
	}
	testenv.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"last_good_file", "last_good_file_of_files", "tokens"} {
		text, err := os.ReadFile(filepath.Join(f.dir, name))
		testenv.NoError(t, err)
		writeFile(t, filepath.Join(dir, name), string(text))
	}
	writeFile(t, filepath.Join(dir, "postgres.sql"), f.postgres.Dump(t))
	for name, value := range map[string]any{"redis.json": keys, "expected.json": expected} {
		text, err := json.MarshalIndent(value, "", "  ")
		testenv.NoError(t, err)
		writeFile(t, filepath.Join(dir, name), string(text)+"\n")
	}
}

// dumpRedis returns all keys.
func (f *formats) dumpRedis() map[string]redisKey {
	f.t.Helper()
	list := func(args ...string) (texts []string) {
		reply, ok := f.redis.Must(f.t, args...).([]any)
		if !ok {
			f.t.Fatalf("%v: no list", args)
		}
		for _, item := range reply {
			texts = append(texts, fmt.Sprint(item))
		}
		return texts
	}
	pairs := func(texts []string, value func(string) string) map[string]string {
		all := map[string]string{}
		for i := 0; i < len(texts); i += 2 {
			all[hex.EncodeToString([]byte(texts[i]))] = value(texts[i+1])
		}
		return all
	}
	asHex := func(s string) string { return hex.EncodeToString([]byte(s)) }
	keys := map[string]redisKey{}
	for _, name := range list("KEYS", "*") {
		expires, err := strconv.ParseInt(fmt.Sprint(f.redis.Must(f.t, "PEXPIRETIME", name)), 10, 64)
		testenv.NoError(f.t, err)
		k := redisKey{Type: fmt.Sprint(f.redis.Must(f.t, "TYPE", name)), Expires: expires}
		switch k.Type {
		case "hash":
			k.Fields = pairs(list("HGETALL", name), asHex)
		case "zset":
			k.Fields = pairs(list("ZRANGE", name, "0", "-1", "WITHSCORES"), func(score string) string { return score })
		case "string":
			k.Value = asHex(fmt.Sprint(f.redis.Must(f.t, "GET", name)))
		default:
			f.t.Fatalf("%s is a %s: record it, too", name, k.Type)
		}
		keys[name] = k
	}
	return keys
}

// loadRedis writes all keys.
func (f *formats) loadRedis(keys map[string]redisKey) {
	f.t.Helper()
	text := func(h string) string {
		decoded, err := hex.DecodeString(h)
		testenv.NoError(f.t, err)
		return string(decoded)
	}
	for name, k := range keys {
		switch k.Type {
		case "hash":
			args := []string{"HSET", name}
			for field, value := range k.Fields {
				args = append(args, text(field), text(value))
			}
			f.redis.Must(f.t, args...)
		case "zset":
			for member, score := range k.Fields {
				f.redis.Must(f.t, "ZADD", name, score, text(member))
			}
		default:
			f.redis.Must(f.t, "SET", name, text(k.Value))
		}
		if k.Expires > 0 {
			f.redis.Must(f.t, "PEXPIREAT", name, strconv.FormatInt(k.Expires, 10))
		}
	}
}

// readFormats starts this version on what an older one has stored.
func readFormats(t *testing.T, dir string) {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		testenv.NoError(t, err)
		return string(text)
	}
	var expected formatsExpected
	testenv.NoError(t, json.Unmarshal([]byte(read("expected.json")), &expected))
	var keys map[string]redisKey
	testenv.NoError(t, json.Unmarshal([]byte(read("redis.json")), &keys))
	f := startFormats(t, read("tokens"))
	f.redis.StepClock(t, time.Until(expected.Time.Add(time.Second))) // it is in whole seconds
	f.loadRedis(keys)
	f.postgres.Execute(t, read("postgres.sql"))
	if r := startJSON[migrateReport](t, 0, "migrate", "--config", f.config); r.From < 1 || r.To < r.From {
		t.Errorf("migrate: %+v", r)
	}
	f.serve(expected.AdminToken)

	got := f.remaining()
	for rule, want := range expected.Remaining {
		if got[rule] != want {
			t.Errorf("%s: %d units remain, want %d", rule, got[rule], want)
		}
	}
	f.wantAllowed(false, "/v1/check", "used-up", "")
	for range 3 {
		f.wantAllowed(true, "/v1/check", "exempted", "")
	}
	if status, text := send(t, http.MethodPost, "http://"+f.addressOf("http")+"/v1/commit",
		fmt.Sprintf(`{"reservation": %q, "cost": 10}`, expected.Reservation)); status != http.StatusOK {
		t.Errorf("commit: %d %s", status, text)
	}
	if remain, _ := f.post("/v1/peek", "reserved", "")["remaining"].(float64); remain != 90 {
		t.Errorf("reserved: %v units remain after a commit of 10 of 30, want 90", remain)
	}
	// Three units are in flight on a node that is gone, until their lease ends.
	f.wantAllowed(true, "/v1/check", "in-flight", `, "begin": true`)
	f.wantAllowed(true, "/v1/check", "in-flight", `, "begin": true`)
	f.wantAllowed(false, "/v1/check", "in-flight", `, "begin": true`)
	f.wantHistory(expected.ViewerToken)

	f.stop()
	<-f.done
	f.postgres.Kill()
	f.file("last_good_file", read("last_good_file"))
	f.serve(expected.AdminToken)
	f.waitForLog("started with the last valid rules")
	f.wantAllowed(false, "/v1/check", "used-up", "")
	f.file("last_good_file_of_files", read("last_good_file_of_files"))
	f.serveFiles("last_good_file_of_files") // rules.yaml is missing
}

// wantHistory checks what PostgreSQL has in addition to rules: tokens, versions, overrides, exemptions and usage.
func (f *formats) wantHistory(viewerToken string) {
	f.t.Helper()
	args := f.args
	f.args = []string{f.args[0], f.args[1], "--token-file", f.file("viewer", viewerToken)}
	for _, command := range [][]string{{"override", "list"}, {"exempt", "list"}, {"rules", "history"}} {
		text := start(f.t, append(command, f.args...)...)
		if text.code != 0 || !strings.Contains(text.out, "ann") {
			f.t.Errorf("%v with the viewer's token: %+v", command, text)
		}
	}
	f.args = args
	exported := start(f.t, append([]string{"rules", "export"}, f.args...)...)
	if got, want := strings.Count(exported.out, "- id: "), strings.Count(formatsRules, "{id: "); got != want {
		f.t.Errorf("%d rules are exported, want %d:\n%s", got, want, exported.out)
	}
	db, err := pgrules.Open(f.postgres.URL(), "")
	testenv.NoError(f.t, err)
	defer db.Close()
	used, err := db.Usage(f.t.Context(), pgrules.UsageFilter{First: "2020-01-01", Last: "2100-01-01"}, pgrules.Page{Limit: 10})
	if err != nil || len(used) != 1 || used[0].Rule != "metered" || used[0].Units != int64(formatsCharges["metered"]) {
		f.t.Errorf("usage %+v, %v", used, err)
	}
}
