package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// outage returns 12 s of 600 calls a second, a fourth of them for a subject with a limit of 100. The store is unavailable from
// 3 s to 7 s. For the first 50 ms there is no fallback, for 200 ms some callers wait for the deadline.
func outage() *Run {
	const rate = 600
	random := rand.New(rand.NewPCG(1, 2))
	run := &Run{
		Title:    "Redis is killed & started again, 600 checks/s",
		Limit:    100,
		Window:   time.Second,
		Deadline: 10 * time.Millisecond,
		Marks:    []Mark{{3 * time.Second, "SIGKILL"}, {7 * time.Second, "Redis up"}},
	}
	tokens := 20.0
	for i := range 12 * rate {
		s := Sample{At: time.Duration(i) * time.Second / rate, Path: "store", Limited: i%4 == 0}
		usual := 300.0
		switch ms := s.At.Milliseconds(); {
		case ms >= 3000 && ms < 3050:
			usual, s.Path = 10_500, "failed"
		case ms >= 3050 && ms < 3200 && i%3 == 0:
			usual, s.Path = 11_000, "local"
		case ms >= 3050 && ms < 7200:
			usual, s.Path = 150, "local"
		}
		s.Latency = time.Duration(usual+100*random.ExpFloat64()) * time.Microsecond
		tokens = min(20, tokens+run.Limit/rate)
		if s.Allowed = s.Limited && tokens >= 1; s.Allowed {
			tokens--
		}
		run.Samples = append(run.Samples, s)
	}
	return run
}

func TestDraw(t *testing.T) {
	var svg, again bytes.Buffer
	if err := errors.Join(outage().Draw(&svg), outage().Draw(&again)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(svg.Bytes(), again.Bytes()) {
		t.Error("two drawings of the same run differ")
	}
	if svg.Len() > 60<<10 {
		t.Errorf("%d bytes: too large for a page", svg.Len())
	}
	texts := textsOf(t, &svg)
	for _, want := range []string{
		outage().Title, "SIGKILL", "Redis up", "limit 100", "deadline + 5 ms", "store", "local", "failed", "12",
		"admitted in 1s", "p99 latency, ms", "decisions by path", "seconds since the start",
	} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is missing in %q", want, texts)
		}
	}
	if slices.Contains(texts, "rules") {
		t.Error("the legend has a path that does not occur")
	}
}

func textsOf(t *testing.T, svg io.Reader) []string {
	t.Helper()
	var texts []string
	for d := xml.NewDecoder(svg); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, string(text))
		}
	}
}

func TestDrawRejectsInvalidRuns(t *testing.T) {
	other := func(path string) Sample { return Sample{Path: path} }
	for want, run := range map[string]*Run{
		"no samples":          {Title: "nothing"},
		"window 250ms: must":  {Window: 250 * time.Millisecond, Samples: []Sample{{}}},
		"sample at -1s: must": {Window: slice, Samples: []Sample{{At: -time.Second}}},
		`mark "x" at -1s: mu`: {Window: slice, Samples: []Sample{{}}, Marks: []Mark{{-time.Second, "x"}}},
		"too few colours":     {Window: slice, Samples: []Sample{other("a"), other("b"), other("c"), other("d")}},
	} {
		if err := run.Draw(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (&Run{Window: slice, Samples: []Sample{{}}}).Draw(io.Discard); err != nil {
		t.Errorf("a single sample: %v", err)
	}
}

func TestSlices(t *testing.T) {
	run := &Run{Window: 500 * time.Millisecond, Samples: []Sample{
		{At: 650 * time.Millisecond, Latency: time.Millisecond, Path: "x", Limited: true, Allowed: true},
		{At: 0, Latency: 2 * time.Millisecond, Path: "store", Limited: true, Allowed: true},
		{At: 99 * time.Millisecond, Latency: time.Millisecond, Path: "local", Limited: true, Allowed: true},
		{At: 100 * time.Millisecond, Path: "local", Limited: true},
		{At: 499 * time.Millisecond, Latency: 3 * time.Millisecond, Path: "local", Allowed: true},
	}}
	if got, want := run.admitted(), []float64{2}; !slices.Equal(got, want) {
		t.Errorf("admitted %v, want %v", got, want)
	}
	if got, want := run.p99(), []float64{2, 0.001, 0, 0, 3, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("p99 %v, want %v", got, want)
	}
	lines := run.stack([]string{"store", "local", "x"})
	for k, want := range [][]float64{{}, {0.5, 0, 0, 0, 0, 0, 0}, {1, 1, 0, 0, 1, 0, 0}, {1, 1, 0, 0, 1, 0, 1}} {
		if k > 0 && !slices.Equal(lines[k], want) {
			t.Errorf("line %d is %v, want %v", k, lines[k], want)
		}
	}
	for n, want := range map[int]float64{1: 1, 99: 99, 100: 99, 101: 100, 200: 198} {
		run := &Run{}
		for i := range n {
			run.Samples = append(run.Samples, Sample{Latency: time.Duration(n-i) * time.Millisecond})
		}
		if got := run.p99()[0]; got != want {
			t.Errorf("p99 of 1 to %d is %v, want %v", n, got, want)
		}
	}
}
