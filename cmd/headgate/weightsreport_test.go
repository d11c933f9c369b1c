package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/server/adminapi"
)

// pendingWeights returns a change that two regions have not acknowledged.
func pendingWeights(at time.Time) adminapi.RegionWeights {
	return adminapi.RegionWeights{At: at, Serial: 7, Grown: []adminapi.WeightsGrown{}, Regions: []adminapi.RegionWeight{
		{Name: "ap", ConfigWeight: 1}, {Name: "eu", Weight: 2, ConfigWeight: 2, Acknowledged: true}, {Name: "us", Weight: 2, ConfigWeight: 2}, {Name: "za", Dead: true},
	}}
}

// TestAwaitAcknowledgements checks what a command says when it stops waiting.
func TestAwaitAcknowledgements(t *testing.T) {
	t.Parallel()
	broken := errors.New("http://gate: connection refused")
	for name, c := range map[string]struct {
		// read changes the state that the server has after some time.
		read    func(after time.Duration, w *adminapi.RegionWeights) error
		notes   string
		elapsed time.Duration
	}{
		"acknowledged": {func(after time.Duration, w *adminapi.RegionWeights) error {
			if after > 14*time.Second {
				w.Since = &w.At
			}
			return nil
		}, "", 14500 * time.Millisecond},
		"not acknowledged": {
			func(time.Duration, *adminapi.RegionWeights) error { return nil },
			"check that the servers of ap and us run, and reach the other regions and their Redis. If no server of a region runs, drain it with --dead; " +
				"to go back, set the weights as they were", ackTimeout,
		},
		"replaced": {func(_ time.Duration, w *adminapi.RegionWeights) error {
			w.Serial = 8
			return nil
		}, "change 8 has replaced change 7: headgate regions shows its state", ackEvery},
		"the server was killed at once": {
			func(time.Duration, *adminapi.RegionWeights) error { return broken },
			"no new state since 2000-01-01 00:00:00 UTC: http://gate: connection refused\nthe state above is that of the last response. " +
				"The change does not depend on this server: run headgate regions with --server of another one", maxSilence,
		},
		"the server was killed late": {func(after time.Duration, _ *adminapi.RegionWeights) error {
			if after > 44*time.Second {
				return broken
			}
			return nil
		}, "no new state since 2000-01-01 00:00:44 UTC: http://gate: connection refused\nthe state above", 44*time.Second + maxSilence},
		"its Redis was killed": {func(_ time.Duration, w *adminapi.RegionWeights) error {
			*w = pendingWeights(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
			return nil
		}, "no new state since 2000-01-01 00:00:00 UTC: the server does not reach its Redis\nthe state above", maxSilence},
		"the server is suspended": {func(time.Duration, *adminapi.RegionWeights) error {
			time.Sleep(maxSilence + time.Second)
			return context.DeadlineExceeded
		}, "no new state since 2000-01-01 00:00:00 UTC: no response within 10s\nthe state above", ackEvery + maxSilence + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := &weightsReport{RegionWeights: pendingWeights(start)}
				r.await(t.Context(), func(context.Context) (adminapi.RegionWeights, error) {
					w := pendingWeights(time.Now())
					err := c.read(time.Since(start), &w)
					return w, err
				})
				got := strings.Join(r.Notes, "\n")
				if !strings.HasPrefix(got, c.notes) || (got == "") != (c.notes == "") || time.Since(start) != c.elapsed {
					t.Errorf("after %v: %q; want after %v: %q", time.Since(start), got, c.elapsed, c.notes)
				}
				if strings.Contains(got, "--dead") != (name == "not acknowledged") {
					t.Errorf("--dead: %q", got)
				}
			})
		})
	}
}

// TestWeightsText checks what is shown of a change that is interrupted.
func TestWeightsText(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			cancel() // as Ctrl-C
		}
		_ = json.NewEncoder(w).Encode(pendingWeights(time.Now()))
	}))
	defer server.Close()
	var out strings.Builder
	code, text := exitStatus(run(ctx, []string{"regions", "drain", "ap", "--server", server.URL}, &out))
	const want = `weights, change 7
REGION  WEIGHT  SHARE   CONFIG  STATUS
ap      0       0.0 %   1       not acknowledged
eu      2       50.0 %  2       acknowledged
us      2       50.0 %  2       not acknowledged
za      0       0.0 %   0       declared dead

Regions that lose weight have their smaller share; no region has a larger share until ap and us have acknowledged the change.

note: interrupted: the change is under way and does not depend on this command; headgate regions shows its state
`
	if code != 1 || text != "" || out.String() != want {
		t.Errorf("%d %q, got\n%s\nwant\n%s", code, text, out.String(), want)
	}
	w := pendingWeights(time.Now())
	w.Regions[0].Acknowledged = true
	if got := pendingText(&w); !strings.HasSuffix(got, "until us has acknowledged the change") {
		t.Error(got)
	}
}

// TestChangeUnknown checks the errors of a change that was not answered, and of one that was not sent.
func TestChangeUnknown(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	change := []string{"regions", "weight", "ap=1", "--server", server.URL}
	if o := start(t, change...); o.code != 1 || !strings.Contains(o.errors, "EOF\nit is unknown whether the weights change: see the output of headgate regions") {
		t.Errorf("%+v", o)
	}
	server.Close()
	if o := start(t, change...); o.code != 2 || !strings.Contains(o.errors, "connection refused") || strings.Contains(o.errors, "unknown") {
		t.Errorf("%+v", o)
	}
	for reply, want := range map[io.Reader]string{
		nil:                      "headgate: standard input is not a terminal, nothing was changed: if no server of the region runs, pass --yes\n",
		strings.NewReader("n\n"): "nothing was changed\n",
	} {
		p := &program{in: reply, out: io.Discard, log: io.Discard}
		if code, text := exitStatus(p.run(t.Context(), []string{"regions", "drain", "ap", "--dead", "--server", server.URL})); code != 2 || text != want {
			t.Errorf("not confirmed: %d %q; want %q", code, text, want)
		}
	}
}

// TestChangeNote checks what headgate regions notes of a change.
func TestChangeNote(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0).UTC()
	w := pendingWeights(at)
	expect := func(want string) {
		t.Helper()
		r := regionsReport{RegionsStatus: adminapi.RegionsStatus{Weights: &w}}
		if got := strings.Join(r.notes(), "\n"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect("weights changed (change 7): no region has a larger share until ap and us have acknowledged the change")
	w.Since = &at
	w.Grown = []adminapi.WeightsGrown{{Limit: "fixed window of a minute", At: at.Add(time.Minute)}, {Limit: "fixed window of an hour", At: at.Add(time.Hour)}}
	expect("weights changed (change 7), acknowledged by all regions: larger shares of a fixed window of a minute from 2027-01-15 08:01:00 UTC and " +
		"of a fixed window of an hour from 2027-01-15 09:00:00 UTC")
	w.At = at.Add(time.Minute)
	expect("weights changed (change 7), acknowledged by all regions: larger shares of a fixed window of an hour from 2027-01-15 09:00:00 UTC")
	w.At = at.Add(time.Hour)
	expect("")
	w.Serial, w.At = 0, at
	expect("")
}
