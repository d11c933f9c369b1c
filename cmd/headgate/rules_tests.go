package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// testReport is the JSON of "rules test". Passed and Failed count tests. Broken counts test files that could not be run.
type testReport struct {
	Passed int          `json:"passed"`
	Failed int          `json:"failed"`
	Broken int          `json:"broken"`
	Files  []testedFile `json:"files"`
}

// testedFile is the result of one test file: its tests, or an error.
type testedFile struct {
	File  string               `json:"file"`
	Tests []ruledoc.TestResult `json:"tests"`
	Error string               `json:"error,omitempty"`
}

func newTest(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE...",
		Short: "Run rule tests",
		Long: `Run rule tests: requests at given times, each with the expected decision. The tests run in memory, without Redis.

Exit codes:
  0  all tests pass
  1  a test fails
  2  a test file is invalid or cannot be read`,
		Example: "  headgate rules test examples/rules/rules_test.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			var r testReport
			for i, file := range files {
				if len(files) > 1 {
					p.progressf("%d of %d: %s", i+1, len(files), file)
				}
				r.run(file)
			}
			p.endProgress()
			if r.Broken > 0 {
				return p.finish(&r, &exitError{code: 2})
			}
			return p.finish(&r, failUnless(r.Failed == 0))
		},
	}
}

func (r *testReport) run(file string) {
	tested := testedFile{File: file, Tests: []ruledoc.TestResult{}}
	if result, err := ruledoc.RunTests(file); err != nil {
		r.Broken++
		tested.Error = err.Error()
	} else {
		tested.Tests = append(tested.Tests, result.Tests...)
		r.Failed += result.Failed()
		r.Passed += len(result.Tests) - result.Failed()
	}
	r.Files = append(r.Files, tested)
}

func (r *testReport) text() string {
	var b strings.Builder
	indented := func(text string) string { return "\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n\n" }
	for _, f := range r.Files {
		fmt.Fprintln(&b, f.File)
		if f.Error != "" {
			b.WriteString("  INVALID: its tests were not run\n" + indented(f.Error))
		}
		for _, t := range f.Tests {
			word := "ok  "
			if len(t.Failures) > 0 {
				word = "FAIL"
			}
			fmt.Fprintf(&b, "  %s  %s (%s)\n", word, t.Name, wording.Count(t.Requests, "request"))
			for _, failure := range t.Failures {
				b.WriteString(indented(failure.String()))
			}
		}
	}
	fmt.Fprintf(&b, "\n%s passed, %d failed in %s", wording.Count(r.Passed, "test"), r.Failed, wording.Count(len(r.Files), "file"))
	if r.Broken > 0 {
		fmt.Fprintf(&b, ", %d of them invalid", r.Broken)
	}
	return b.String() + "\n"
}
