package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
)

func TestOverrideImport(t *testing.T) {
	t.Parallel()
	o := startControlPlane(t)
	operateJSON[planReport](o, 0, "rules", "apply", o.file("rules.yaml", operatedRules), "--yes")
	var b strings.Builder
	b.WriteString("rule,subject,limit,expires,reason\n")
	const rows = 2*importBatch + 7
	for i := range rows {
		fmt.Fprintf(&b, "search,tenant=t%d,%d/minute,2099-01-01,\"more, much more\"\n", i, i+1)
	}
	b.WriteString("search,tenant=old,1/minute,2020-01-01,\n")
	good := o.file("good.csv", b.String())
	r := operateJSON[importReport](o, 0, "override", "import", good)
	if r.Rows != rows || r.Changed != rows || r.Ended != 1 || r.RowsPerSecond < 1 {
		t.Errorf("%+v", r)
	}
	if r = operateJSON[importReport](o, 0, "override", "import", good); r.Rows != rows || r.Changed != 0 {
		t.Errorf("again: %+v", r)
	}
	r = operateJSON[importReport](o, 0, "override", "import", good, "--from-line", number(rows))
	if r.Rows != 2 || r.Before != rows-2 {
		t.Errorf("from a line: %+v", r)
	}
	if l := operateJSON[overrideList](o, 0, "override", "list"); len(l.Overrides) != defaultListed || !l.More {
		t.Errorf("%d, %v", len(l.Overrides), l.More)
	}

	// Nothing of a file with invalid lines is set, and all invalid lines are reported.
	lines := strings.Split(b.String(), "\n")
	for line, invalid := range map[int]string{
		3: "search,user=t1,2/minute,,", 4: "serch,tenant=t2,3/minute,,", 10004: "search,tenant=t10002,5/minut,,", 10005: "login,tenant=a,5/day,,",
	} {
		lines[line-1] = invalid
	}
	lines[1] = "search,tenant=t0,77/minute,,"
	bad := o.file("bad.csv", strings.Join(lines, "\n"))
	o.do(1, `bad.csv:3: subject: missing tenant: rule "search" counts by tenant
bad.csv:4: rule "serch" not found: list the rules with headgate rules export
bad.csv:10004: limit: unknown unit "minut"; did you mean 5/minute?
bad.csv:10005: rule "login" has no limit "": set limit_name to one of day, peak
nothing was sent
`, "override", "import", bad)
	l := operateJSON[overrideList](o, 0, "override", "list", "--subject", "tenant=t0")
	if len(l.Overrides) != 1 || l.Overrides[0].Limit != "1/minute" {
		t.Errorf("a line of an invalid file was set: %+v", l)
	}

	// Expired lines are reported and skipped.
	old := o.file("old.csv", "rule,subject,limit,expires\nsearch,tenant=x,5/minute,2020-01-01\nsearch,tenant=y,5/minute,2020-01-01\n")
	if r = operateJSON[importReport](o, 0, "override", "import", old); r.Rows != 0 || r.Ended != 2 || len(r.Warnings) != 2 ||
		!strings.HasSuffix(r.Warnings[1], "old.csv:3: skipped: expired at 2020-01-01T00:00:00Z") {
		t.Errorf("%+v", r)
	}
	o.do(0, "warning: --expires TIME is in the past, the override would have no effect: nothing was changed\n", "override", "set", "search",
		"tenant=x", "5/minute", "--expires", "2020-01-01")
	if l := operateJSON[overrideList](o, 0, "override", "list", "--subject", "tenant=x"); len(l.Overrides) != 0 {
		t.Errorf("%+v", l)
	}
	o.file("bad.csv.progress", `{"server": "elsewhere", "sha256": "", "line": 10002}`)
	if r = operateJSON[importReport](o, 0, "override", "import", good); r.Before != 0 { // the progress of another file is ignored
		t.Errorf("%+v", r)
	}
	if err := os.Rename(bad+".progress", good+".progress"); err != nil {
		t.Fatal(err)
	}
	if r = operateJSON[importReport](o, 0, "override", "import", good); r.Before != 0 {
		t.Errorf("with the progress of another server: %+v", r)
	}
	if _, err := os.Stat(good + ".progress"); err == nil {
		t.Error("the progress file remains")
	}
}

// TestOverrideImportResumes lets the server fail in the middle of an import.
func TestOverrideImportResumes(t *testing.T) {
	t.Parallel()
	var posts, sent atomic.Int64
	server := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"rules": [{"ruleId": "1", "rule": {"id": "login", "by": ["tenant", "user"], "limit": "5/minute"}}]}`)
			return
		}
		var wanted struct{ Overrides []adminapi.Override }
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			t.Error(err)
		}
		if posts.Add(1) == 2 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"detail": "PostgreSQL unavailable: try again"}`)
			return
		}
		sent.Add(int64(len(wanted.Overrides)))
		_, _ = fmt.Fprintf(w, `{"changed": %d}`, len(wanted.Overrides))
	}))
	var b strings.Builder
	b.WriteString("limit,subject,rule\n")
	for i := range importBatch + 5 {
		fmt.Fprintf(&b, "%d/minute,\"user=u%d,\n tenant=t\",login\n", i+1, i) // two lines each
	}
	file := filepath.Join(t.TempDir(), "o.csv")
	writeFile(t, file, b.String())
	args := []string{"override", "import", file, "--server", server.URL}
	want := fmt.Sprintf("headgate: %s: PostgreSQL unavailable: try again\nall lines before line 10001 are set; run the same command "+
		"again to resume there\n", server.URL)
	if got := start(t, args...); got.code != 2 || got.errors != want {
		t.Errorf("%+v\nwant %s", got, want)
	}
	r := startJSON[importReport](t, 0, args...)
	if r.Rows != 5 || r.Before != importBatch || r.Changed != 5 || sent.Load() != importBatch+5 {
		t.Errorf("%+v, %d were sent", r, sent.Load())
	}
	if r = startJSON[importReport](t, 0, args...); r.Before != 0 {
		t.Errorf("the progress of a completed import is used: %+v", r)
	}
}

func TestOverrideOfSharedCounter(t *testing.T) {
	t.Parallel()
	rules := map[string]*headgate.Rule{"reports": {ID: "reports", Counter: "api"}}
	err := checkOverride(&adminapi.Override{Rule: "reports", Subject: headgate.Attributes{"tenant": "acme"}, Limit: "5/minute"}, rules)
	if err == nil || err.Error() != `rule "reports" charges the counters of rule "api": write api` {
		t.Error(err)
	}
}
