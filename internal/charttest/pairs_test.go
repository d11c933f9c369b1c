package charttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// choice is an alternative of a factor, by their indexes.
type choice struct{ factor, alternative int }

// factors are the values of the chart with their alternatives.
type factors struct {
	names        []string
	alternatives [][]values
}

func readFactors(t testing.TB) factors {
	t.Helper()
	all := readYAML[map[string][]values](t, "testdata/alternatives.yaml")
	var f factors
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f.names = append(f.names, name)
		f.alternatives = append(f.alternatives, all[name])
	}
	return f
}

// feasible reports whether two alternatives may occur together: an exposed admin API requires TLS, and counters in memory require one pod,
// no config of Redis and no regions.
func (f *factors) feasible(a, b choice) bool {
	for _, pair := range [][2]choice{{a, b}, {b, a}} {
		one, other := f.of(pair[0]), f.of(pair[1])
		exposed, memory := at[bool](one, "admin", "expose"), at[string](one, "store") == "memory"
		switch f.names[pair[1].factor] {
		case "listen":
			if exposed && at[string](other, "tls", "existingSecret") == "" {
				return false
			}
		case "replicas", "config", "regions":
			if memory && len(other) > 0 {
				return false
			}
		}
	}
	return true
}

func (f *factors) of(c choice) values { return f.alternatives[c.factor][c.alternative] }

// pairs returns all pairs of alternatives of different factors that may occur together.
func (f *factors) pairs() map[[2]choice]bool {
	open := map[[2]choice]bool{}
	for i := range f.names {
		for j := range i {
			for a := range f.alternatives[i] {
				for b := range f.alternatives[j] {
					if pair := [2]choice{{j, b}, {i, a}}; f.feasible(pair[0], pair[1]) {
						open[pair] = true
					}
				}
			}
		}
	}
	return open
}

// cover returns rows, with an alternative of each factor, in which every feasible pair occurs. Each row starts with a pair that is not
// covered yet, and takes for each other factor the alternative that covers most.
func (f *factors) cover() (rows [][]int) {
	open, random := f.pairs(), rand.New(rand.NewPCG(1, 2))
	order := slices.SortedFunc(maps.Keys(open), func(a, b [2]choice) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, first := range order {
		if !open[first] {
			continue
		}
		row := slices.Repeat([]int{-1}, len(f.names))
		row[first[0].factor], row[first[1].factor] = first[0].alternative, first[1].alternative
		for _, factor := range random.Perm(len(f.names)) {
			if row[factor] < 0 {
				row[factor] = f.best(row, factor, open)
			}
		}
		for i := range row {
			for j := range i {
				delete(open, [2]choice{{j, row[j]}, {i, row[i]}})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// best returns the feasible alternative of a factor that covers most open pairs with the row's present choices.
func (f *factors) best(row []int, factor int, open map[[2]choice]bool) int {
	best, highest := -1, -1
	for a := range f.alternatives[factor] {
		covered, possible := 0, true
		for other, b := range row {
			if b < 0 {
				continue
			}
			pair := [2]choice{{other, b}, {factor, a}}
			if other > factor {
				pair[0], pair[1] = pair[1], pair[0]
			}
			possible = possible && f.feasible(pair[0], pair[1])
			if open[pair] {
				covered++
			}
		}
		if possible && covered > highest {
			best, highest = a, covered
		}
	}
	return best
}

// TestCover counts the pairs of the covering array in another way.
func TestCover(t *testing.T) {
	t.Parallel()
	f := readFactors(t)
	rows := f.cover()
	for pair := range f.pairs() {
		if !slices.ContainsFunc(rows, func(row []int) bool {
			return row[pair[0].factor] == pair[0].alternative && row[pair[1].factor] == pair[1].alternative
		}) {
			t.Errorf("no row has %s %d and %s %d", f.names[pair[0].factor], pair[0].alternative, f.names[pair[1].factor], pair[1].alternative)
		}
	}
	t.Logf("%d rows for %d pairs of %d factors", len(rows), len(f.pairs()), len(f.names))
}

// TestAlternativesAreComplete requires that every value of the chart is set by an alternative.
func TestAlternativesAreComplete(t *testing.T) {
	t.Parallel()
	f, all := readFactors(t), values{}
	for _, alternatives := range f.alternatives {
		for _, v := range alternatives {
			all = merge(all, v)
		}
	}
	set := leaves(all, "")
	for _, path := range leaves(readYAML[values](t, filepath.Join(chartDir(t), "values.yaml")), "") {
		if !slices.ContainsFunc(set, func(s string) bool {
			return s == path || strings.HasPrefix(s, path+".") || strings.HasPrefix(path, s+".")
		}) {
			t.Errorf("%s: not in testdata/alternatives.yaml", path)
		}
	}
}

// TestPairs renders every pair of alternatives: Kubernetes accepts the objects, and the server the config in them.
func TestPairs(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		f, c := readFactors(t), c.withNotes(t)
		files := fixtures(t)
		dir := t.TempDir()
		for i, row := range f.cover() {
			v := values{}
			for factor, alternative := range row {
				v = merge(v, f.alternatives[factor][alternative])
			}
			text, err := c.template(t, v)
			if err != nil {
				t.Fatalf("%v: %v", v, err)
			}
			testenv.WriteFiles(t, dir, map[string]string{fmt.Sprintf("%03d.yaml", i): string(text)})
			all := parse(t, text)
			newPod(t, all, files).validate()
			checkNotes(t, at[string](all.find("ConfigMap", "notes"), "data", "notes"))
		}
		validate(t, dir)
	})
}

// withNotes returns a copy of the chart that renders NOTES.txt, which "helm template" does not, in a ConfigMap.
func (c chart) withNotes(t testing.TB) chart {
	t.Helper()
	dir := t.TempDir()
	testenv.NoError(t, os.CopyFS(dir, os.DirFS(c.dir)))
	notes := readText(t, filepath.Join(dir, "templates", "NOTES.txt"))
	testenv.WriteFiles(t, filepath.Join(dir, "templates"), map[string]string{"notes.yaml": `{{- define "notes" }}` + notes + `{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data: {notes: {{ include "notes" . | toJson }}}
`})
	return chart{c.helm, dir}
}

// checkNotes looks for what a template prints for a value that does not exist, and for gaps.
func checkNotes(t testing.TB, notes string) {
	t.Helper()
	for _, wrong := range []string{"<no value>", "%!", "<nil>", "\n\n\n"} {
		if strings.Contains(notes, wrong) {
			t.Errorf("%q in the notes:\n%s", wrong, notes)
		}
	}
	if !strings.Contains(notes, "helm -n shop test demo") {
		t.Errorf("no end of the notes:\n%s", notes)
	}
}

// operatorVersion is the release of the Prometheus Operator whose resource definitions are used.
const operatorVersion = "v0.92.1"

// validate checks a manifest, or all in a directory, against the schemas of Kubernetes and of the Prometheus Operator.
func validate(t *testing.T, path string) {
	t.Helper()
	module := "github.com/prometheus-operator/prometheus-operator@" + operatorVersion
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module).Output()
	if err != nil {
		t.Fatalf("%s: %v", module, err)
	}
	var downloaded struct{ Dir string }
	testenv.NoError(t, json.Unmarshal(out, &downloaded))
	crds := filepath.Join(downloaded.Dir, "example", "prometheus-operator-crd")
	tool := testenv.Find(t, "kubectl-validate")
	result, err := exec.CommandContext(t.Context(), tool, path, "--local-crds", crds).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%.10000s", err, failures(string(result)))
	}
	if !strings.Contains(string(result), "OK") {
		t.Errorf("nothing was validated: %s", result)
	}
}

// failures returns the output of kubectl-validate without what is valid.
func failures(output string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(output, "\n"), func(line string) bool { return strings.Contains(line, "OK") }), "\n")
}
