package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

const (
	// importBatch is half of what a server takes at once.
	importBatch = 5000
	// tellEvery is how often whoever waits is told how far it is.
	tellEvery = 2 * time.Second
)

// importReport is the JSON of "override import".
type importReport struct {
	File string `json:"file"`
	// Rows were sent, of which Changed were not there already as they are.
	Rows    int `json:"rows"`
	Changed int `json:"changed"`
	// Ended were left out because they have expired, and Before because an earlier import has done them.
	Ended         int     `json:"ended"`
	Before        int     `json:"before"`
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	// Warnings name the lines that have expired, the first of them.
	Warnings []string `json:"warnings"`
}

func newOverrideImport(p *program) *cobra.Command {
	from := 0
	cmd := p.asking(&cobra.Command{
		Use:   "import FILE.csv --server ADDRESS",
		Short: "Set many overrides, from a file",
		Long: `Set many overrides, from a file in CSV. Its first line names the columns: rule, subject and limit, and if wanted
expires, reason and limit_name, in any order:

  rule,subject,limit,expires,reason
  search-by-key,tenant=acme,5000/minute,2026-12-01,launch
  exports,"tenant=acme,user=ann",100/hour burst 20,,

The whole file is checked first, also by the rules of the server: nothing is sent if a line is wrong, and all that are
wrong are named. What has expired is left out with a warning. An import that was
interrupted goes on where it stopped: FILE.csv.progress remembers how far that was, or give --from-line. To import a file
again changes nothing. Overrides that are not in the file stay.

Exit code: 0 all is set; 1 there are problems in the file; 2 not all could be set.`,
		Example: "  headgate override import overrides.csv --server https://gate:8083 --token-file token",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		rules, unknown := rulesByName(ctx, c)
		file, err := checkOverrides(ctx, args[0], rules, time.Now())
		var problems csvErrors
		switch {
		case errors.As(err, &problems) && unknown != nil:
			return nil, &exitError{1, fmt.Sprintf("%s\nnothing is sent; the rules cannot be asked, so there may be more: %s\n", problems, unknown)}
		case errors.As(err, &problems):
			return nil, &exitError{1, problems.Error() + "\nnothing is sent\n"}
		case err != nil || unknown != nil:
			return nil, cmp.Or(err, unknown)
		}
		i := overrideImport{p: p, server: c, file: file, r: importReport{File: args[0], Warnings: file.warnings}}
		if i.line = from; from == 0 {
			i.recall()
		}
		return &i.r, i.run(ctx)
	})
	cmd.Flags().IntVar(&from, "from-line", 0, "begin with line `N` of the file; the line of column names is 1")
	return cmd
}

// overrideImport is one run.
type overrideImport struct {
	p      *program
	server *adminclient.Client
	file   *overrideFile
	r      importReport

	line        int // the first that is not done
	batch       []adminapi.Override
	lines       []int // of the batch
	began, told time.Time
}

// rulesByName returns the rules of a server, those that are disabled included, by their names and ids.
func rulesByName(ctx context.Context, c *adminclient.Client) (map[string]*headgate.Rule, error) {
	all, err := c.Rules(ctx, false)
	if err != nil {
		return nil, err
	}
	rules := map[string]*headgate.Rule{}
	for _, stored := range all {
		rule, err := c.ParseRule("a rule", stored.Document)
		if err != nil {
			return nil, err
		}
		rules[rule.ID], rules[stored.UUID] = &rule, &rule
	}
	return rules, nil
}

func (i *overrideImport) run(ctx context.Context) error {
	i.began = time.Now()
	i.told = i.began
	err := i.file.each(ctx, func(line int, o *adminapi.Override) error {
		if line < i.line {
			i.r.Before++
			return nil
		}
		if expiredAt(o, i.began) {
			i.r.Ended++
			return nil
		}
		i.batch, i.lines = append(i.batch, *o), append(i.lines, line)
		if len(i.batch) < importBatch {
			return nil
		}
		return i.send(ctx)
	})
	if err == nil && len(i.batch) > 0 {
		err = i.send(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w\nall before line %d is set, and the same command goes on from there", err, max(i.line, 2))
	}
	_ = os.Remove(i.progressFile()) // if it stays, the next import of this file has nothing to do
	i.r.Seconds = time.Since(i.began).Seconds()
	i.r.RowsPerSecond = float64(i.r.Rows) / i.r.Seconds
	return nil
}

// wrongOverride is how a server says which of many it is about.
var wrongOverride = regexp.MustCompile(`^override (\d+): `)

func (i *overrideImport) send(ctx context.Context) error {
	changed, err := i.server.SetOverrides(ctx, i.batch)
	if denied, ok := errors.AsType[*adminclient.StatusError](err); ok {
		if place := wrongOverride.FindStringSubmatch(denied.Detail); place != nil {
			if n, _ := strconv.Atoi(place[1]); n < len(i.lines) {
				return fmt.Errorf("%s:%d: %s", i.file.name, i.lines[n], denied.Detail[len(place[0]):])
			}
		}
	}
	if err != nil {
		return err
	}
	i.r.Rows += len(i.batch)
	i.r.Changed += changed
	i.line = i.lines[len(i.lines)-1] + 1
	i.batch, i.lines = i.batch[:0], i.lines[:0]
	if now := time.Now(); now.Sub(i.told) >= tellEvery {
		i.told = now
		done, rate := i.r.Rows+i.r.Before+i.r.Ended, float64(i.r.Rows)/now.Sub(i.began).Seconds()
		left := time.Duration(float64(i.file.rows-done) / rate * float64(time.Second)).Round(time.Second)
		i.p.say("%s of %s, %s/s, %s to go", wording.Number(int64(done)), wording.Count(i.file.rows, "row"),
			wording.Number(int64(rate)), left)
	}
	return i.remember()
}

// importProgress is how far an import is, of a file with these bytes, on a server.
type importProgress struct {
	Server string `json:"server"`
	SHA256 string `json:"sha256"`
	Line   int    `json:"line"`
}

func (i *overrideImport) progressFile() string { return i.file.name + ".progress" }

func (i *overrideImport) remember() error {
	data, err := json.Marshal(importProgress{i.server.Server, i.file.sum, i.line})
	if err == nil {
		err = os.WriteFile(i.progressFile(), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("how far the import is cannot be remembered: %w: import with --from-line %d from a directory that can be "+
			"written to", err, i.line)
	}
	return nil
}

// recall finds where an import of this very file stopped. One that cannot be told begins anew, which does no harm.
func (i *overrideImport) recall() {
	data, err := os.ReadFile(i.progressFile())
	var was importProgress
	if err != nil || json.Unmarshal(data, &was) != nil || was.Server != i.server.Server || was.SHA256 != i.file.sum {
		return
	}
	i.line = was.Line
	i.p.say("going on at line %d, as %s says", i.line, i.progressFile())
}

func (r *importReport) text() string {
	var more []string
	if r.Before > 0 {
		more = append(more, wording.Count(r.Before, "row")+" set before")
	}
	if r.Ended > 0 {
		more = append(more, wording.Count(r.Ended, "row")+" left out, for they have expired")
	}
	text := fmt.Sprintf("%s in %.1f s, %s/s: %s set, %s as they are already", wording.Count(r.Rows, "row"), r.Seconds,
		wording.Number(int64(r.RowsPerSecond)), wording.Number(int64(r.Changed)), wording.Number(int64(r.Rows-r.Changed)))
	lines := []string{strings.Join(append([]string{text}, more...), "; ")}
	lines = append(lines, r.Warnings...)
	if left := r.Ended - len(r.Warnings); left > 0 {
		lines = append(lines, "and "+wording.Count(left, "line")+" more")
	}
	return strings.Join(lines, "\nwarning: ") + "\n"
}
