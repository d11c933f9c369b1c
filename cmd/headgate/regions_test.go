package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/doctor"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/testenv"
)

// TestRegionsText checks what is shown of a region that is down, and of one with other members.
func TestRegionsText(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0).UTC()
	r := &regionsReport{RegionsStatus: adminapi.RegionsStatus{
		At: at, Region: "eu", Coverage: fanout.Coverage{Nodes: 3, Replied: 2, Problem: "1 of 3 nodes did not answer in time"}, Missing: []string{"gate-3:8080"},
		Members: []adminapi.RegionMember{
			{Name: "ap", Address: "ap.example.com:8084", Weight: 1, Share: 25, Problem: "connection refused"},
			{Name: "eu", Own: true, Address: "eu.example.com:8084", Weight: 2, Share: 50, Up: true, Version: "v1.4.0", SameMembers: new(true)},
			{
				Name: "us", Address: "us.example.com:8084", Weight: 1, Share: 25, Up: true, RTT: new(0.0824), LastContact: new(at.Add(-400 * time.Millisecond)),
				ClockAhead: new(-0.0012), Version: "v1.4.0", SameMembers: new(false), Problem: "it has other members or weights",
			},
		},
		Loans: adminapi.RegionLoans{
			Borrowed: 12345, Lent: 1, Requests: 90, Unanswered: 3, Rejected: map[string]int64{"no_units": 4, "borrowing": 2, "other_window": 0},
		},
		Unreached: []adminapi.RegionUnreached{{Node: "gate-2:8080", Region: "us", Problem: "i/o timeout"}},
	}}
	r.Notes = r.notes()
	const want = `region eu; 3 regions, 1 down; 2 of 3 servers of this region responded
REGION            WEIGHT  SHARE   STATUS  RTT      LAST CONTACT  CLOCK    MEMBERS  VERSION  ADDRESS
ap                1       25.0 %  down    –        never         unknown  unknown  unknown  ap.example.com:8084
eu (this region)  2       50.0 %  up      –        –             –        same     v1.4.0   eu.example.com:8084
us                1       25.0 %  up      82.4 ms  0s ago        -1.2 ms  differ   v1.4.0   us.example.com:8084

ap: connection refused
us: it has other members or weights
us: not reached by gate-2:8080: i/o timeout

Since the servers of this region started
  borrowed                12,345 units
  lent                    1 unit
  lost                    0 units
  loan requests sent      90, 3 unanswered, 0 skipped
  loan requests rejected  6 (borrowing 2, no_units 4)

note: units and requests are incomplete: 1 of 3 nodes did not answer in time: gate-3:8080
note: limits that regions share lack the share of ap, 25.0 %, until it is up: run headgate doctor --config /etc/headgate/config.yaml on a server of this region, then query a server of ap
note: regions with other members, weights or secrets lend each other nothing, and may allow more than the limit: write the same regions.members and secret_file in the configs of all regions, and restart their servers
`
	if got := r.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r.healthy() {
		t.Error("healthy")
	}
	r.Members[2].Up = false
	if got := r.notes()[1]; !strings.Contains(got, "lack the share of ap and us, 50.0 %, until they are up") {
		t.Error(got)
	}
}

// TestRegionsUsageText checks what is shown of a limit that regions share, while one of them does not respond.
func TestRegionsUsageText(t *testing.T) {
	t.Parallel()
	shared := &explain.Regions{Limit: 300, Complete: true}
	shared.Add(explain.RegionUsage{Name: "eu", Own: true, Share: 100, Used: new(int64(60)), Remaining: new(int64(40)), Lent: new(int64(15))})
	shared.Add(explain.RegionUsage{Name: "us", Share: 100, Problem: "did not respond in time"})
	r := usageReport{Usage: []adminapi.Usage{{Rule: "all", Limited: true, Limits: []adminapi.LimitUsage{{
		Limit: 300, Share: new(int64(100)), Remaining: 40, Calendar: "month", Origin: "rule", Enforced: true, ResetAt: time.Unix(1_800_000_000, 0), Regions: shared,
	}}}}}
	const want = `RULE  REMAINING  PER    RESET                 NOTES
all   40 of 100  month  2027-01-15T08:00:00Z  share of this region; used at least 60 of 300 in all regions

Shared by regions; units that a region has lent count as used there
  RULE  REGION            SHARE  USED     LENT     REMAINING  NOTES
  all   eu (this region)  100    60       15       40         
  all   us                100    unknown  unknown  unknown    did not respond in time
`
	if got := r.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// operatedRegions are three regions, and a token for their admin APIs.
type operatedRegions struct {
	t       *testing.T
	files   map[string]string
	servers map[string]*testServer
	token   string // its file
}

// newOperatedRegions starts three regions with rules.
func newOperatedRegions(t *testing.T, rules string) *operatedRegions {
	t.Helper()
	made := startJSON[tokenReport](t, 0, "token", "create", "ann", "--role", "editor")
	o := &operatedRegions{t, regionsConfig(t, rules), map[string]*testServer{}, secretFile(t, made.Token)}
	for name, file := range o.files {
		config, err := os.ReadFile(file)
		testenv.NoError(t, err)
		writeFile(t, file, string(config)+"admin: {tokens_file: "+secretFile(t, made.Line)+"}\n")
		o.start(name)
	}
	o.await("ap", true)
	o.await("us", true)
	return o
}

func (o *operatedRegions) start(name string) {
	o.t.Helper()
	o.servers[name] = serve(o.t, "--config", o.files[name])
	o.servers[name].waitForLog(redisConnected)
}

// stop stops the servers of a region, and waits until eu notices.
func (o *operatedRegions) stop(name string) {
	o.t.Helper()
	o.servers[name].stop()
	<-o.servers[name].done
	o.await(name, false)
}

// await waits until eu sees a region up or down.
func (o *operatedRegions) await(name string, up bool) {
	o.t.Helper()
	eventually(o.t, fmt.Sprintf("%s is up: %v", name, up), func() bool {
		r := start(o.t, o.args("regions", "-o", "json")...)
		var status adminapi.RegionsStatus
		return json.Unmarshal([]byte(r.out), &status) == nil &&
			slices.ContainsFunc(status.Members, func(m adminapi.RegionMember) bool { return m.Name == name && m.Up == up && !m.Own })
	})
}

// args adds the server of eu to arguments.
func (o *operatedRegions) args(args ...string) []string {
	return append(args, "--server", "http://"+o.servers["eu"].addressOf("admin"), "--token-file", o.token)
}

// use charges units in a region.
func (o *operatedRegions) use(name string, units int) {
	o.t.Helper()
	body := fmt.Sprintf(`{"attributes": {"user": "ann"}, "cost": %d}`, units)
	status, text := send(o.t, http.MethodPost, "http://"+o.servers[name].addressOf("http")+"/v1/check", body)
	if status != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
		o.t.Fatalf("%s: %d %s", name, status, text)
	}
}

// usage runs a command that shows the usage of ann, and checks how much of the limit is used in all regions.
func (o *operatedRegions) usage(code int, used int64, complete bool, args ...string) usageReport {
	o.t.Helper()
	r := startJSON[usageReport](o.t, code, o.args(args...)...)
	for end := time.Now().Add(patience); args[0] == "usage" && r.Usage[0].Limits[0].Regions.Complete != complete && time.Now().Before(end); {
		r = startJSON[usageReport](o.t, code, o.args(args...)...) // a machine that stalls may make a region respond late
	}
	all := r.Usage[0].Limits[0].Regions
	if all == nil || all.Used != used || all.Complete != complete || all.Limit != 300 || len(all.Members) != 3 {
		o.t.Errorf("%v: want %d used, complete %v: %+v", args, used, complete, all)
	}
	return r
}

// doctor examines the changed config of eu, and expects a finding.
func (o *operatedRegions) doctor(change func(*config.Config), check string, status doctor.Status, words string) {
	o.t.Helper()
	c, err := (&program{out: io.Discard, log: io.Discard}).loadConfig(o.files["eu"])
	testenv.NoError(o.t, err)
	change(c)
	f := expectFinding(o.t, doctorReport{Findings: doctor.CheckRegions(o.t.Context(), c, time.Now())}, check, status, words)
	if (f.Remedy == "") != (status == doctor.OK) {
		o.t.Errorf("remedy %q", f.Remedy)
	}
}

// TestOperateRegions shows and resets the usage of a shared limit while all regions are up, and while one is down.
func TestOperateRegions(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	o := newOperatedRegions(t, "rules: [{id: all, by: [user], regions: shared, limit: {quota: 300, calendar: month}}]\n")
	if r := start(t, o.args("regions")...); r.code != 0 || !strings.HasPrefix(r.out, "region eu; 3 regions, 0 down; 1 of 1 server of this region responded\n") {
		t.Errorf("%+v", r)
	}
	o.doctor(func(*config.Config) {}, "region us", doctor.OK, "responds with the same members and weights")
	o.doctor(func(*config.Config) {}, "listener", doctor.OK, "responds with a valid certificate")
	o.doctor(func(c *config.Config) { c.Regions.Members[0].Weight = 2 }, "region us", doctor.Problem, "other members or weights")
	secret := filepath.Join(t.TempDir(), "secret")
	testenv.NoError(t, os.WriteFile(secret, []byte("a secret of eu only"), 0o600))
	o.doctor(func(c *config.Config) { c.SecretFile = secret }, "region us", doctor.Problem, "another secret_file")
	o.doctor(func(c *config.Config) { c.Regions.Members[0].Name, c.Regions.Name = "asia", "asia" }, "region us", doctor.Problem, `region "asia" is not a member`)
	o.use("eu", 20)
	o.use("us", 21)
	usage := []string{"usage", "user=ann", "--rule", "all"}
	o.usage(0, 41, true, usage...)
	if r := start(t, o.args("explain", "user=ann")...); r.code != 0 || !strings.Contains(r.out, "20 of 100, 41 of 300 in all regions") {
		t.Errorf("%+v", r)
	}
	o.usage(0, 11, true, "grant", "all", "user=ann", "30") // 20 here, and 10 there
	o.use("eu", 5)
	o.stop("us")
	o.doctor(func(*config.Config) {}, "region us", doctor.Problem, "connection refused")
	if r := start(t, o.args("regions")...); r.code != 1 || !strings.Contains(r.out, "region eu; 3 regions, 1 down;") || !strings.Contains(r.out, "\nus: ") {
		t.Errorf("%+v", r)
	}
	r := o.usage(0, 5, false, usage...)
	for _, m := range r.Usage[0].Limits[0].Regions.Members {
		if (m.Problem != "") != (m.Name == "us") || m.Share != 100 || m.Own != (m.Name == "eu") {
			t.Errorf("%+v", m)
		}
	}
	r = o.usage(1, 0, false, "reset", "all", "user=ann")
	if len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "region us did not respond: ") ||
		!strings.HasSuffix(r.Notes[0], "connection refused; repeat the reset when it responds") {
		t.Errorf("notes %q", r.Notes)
	}
	o.start("us")
	o.await("us", true)
	o.usage(0, 11, true, usage...)
	o.usage(0, 0, true, "reset", "all", "user=ann")
}

// TestNoRegions checks what a server without regions says.
func TestNoRegions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.WriteFiles(t, dir, map[string]string{"config.yaml": anyPorts + "store: memory\nrules: rules.yaml\n", "rules.yaml": sharedRule})
	s := serve(t, "--dev", "--config", filepath.Join(dir, "config.yaml"))
	r := start(t, "regions", "--server", "http://"+s.addressOf("admin"))
	if r.code != 2 || !strings.Contains(r.errors, "no other regions: write regions with name, members and tls in its config") {
		t.Errorf("%+v", r)
	}
}
