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
)

func TestOverrideImport(t *testing.T) {
	t.Parallel()
	o := operate(t)
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
	if l := operateJSON[overrideList](o, 0, "override", "list"); len(l.Overrides) != usualList || !l.More {
		t.Errorf("%d, %v", len(l.Overrides), l.More)
	}

	// What a server refuses is known by its line, and an import goes on behind what is done.
	broken := strings.Replace(b.String(), "search,tenant=t10002,", "search,user=t10002,", 1)
	bad := o.file("bad.csv", broken)
	o.do(2, `headgate: bad.csv:10004: refused: the subject needs tenant: rule "search" counts by tenant
all before line 10002 is set, and the same command goes on from there
`, "override", "import", bad)
	data, err := os.ReadFile(bad + ".progress")
	if err != nil || !strings.Contains(string(data), `"line":10002`) {
		t.Errorf("%s %v", data, err)
	}
	if r = operateJSON[importReport](o, 0, "override", "import", good); r.Before != 0 { // that of another file says nothing
		t.Errorf("%+v", r)
	}
	if err := os.Rename(bad+".progress", good+".progress"); err != nil {
		t.Fatal(err)
	}
	if r = operateJSON[importReport](o, 0, "override", "import", good); r.Before != 0 {
		t.Errorf("with the progress of another: %+v", r)
	}
	if _, err := os.Stat(good + ".progress"); err == nil {
		t.Error("the progress stays")
	}
}

// TestOverrideImportGoesOn has a server fail in the middle of an import.
func TestOverrideImportGoesOn(t *testing.T) {
	t.Parallel()
	var posts, sent atomic.Int64
	server := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var wanted struct{ Overrides []override }
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			t.Error(err)
		}
		if posts.Add(1) == 2 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"detail": "PostgreSQL is away: try again"}`)
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
	want := fmt.Sprintf("headgate: %s: PostgreSQL is away: try again\nall before line 10001 is set, and the same command goes on "+
		"from there\n", server.URL)
	if got := start(t, args...); got.code != 2 || got.errors != want {
		t.Errorf("%+v\nwant %s", got, want)
	}
	r := startJSON[importReport](t, 0, args...)
	if r.Rows != 5 || r.Before != importBatch || r.Changed != 5 || sent.Load() != importBatch+5 {
		t.Errorf("%+v, %d were sent", r, sent.Load())
	}
	if r = startJSON[importReport](t, 0, args...); r.Before != 0 {
		t.Errorf("what is done is remembered: %+v", r)
	}
}
