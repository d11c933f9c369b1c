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
	// importBatch is half of the number of overrides that a server accepts per call.
	importBatch = 5000
	// progressInterval is the time between progress messages.
	progressInterval = 2 * time.Second
)

// importReport is the JSON of "override import".
type importReport struct {
	File string `json:"file"`
	// Rows is the number of rows sent. Changed of them differed from the stored overrides.
	Rows    int `json:"rows"`
	Changed int `json:"changed"`
	// Ended is the number of rows skipped because they have expired. Before is the number of rows that an earlier import has sent.
	Ended         int     `json:"ended"`
	Before        int     `json:"before"`
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	// Warnings name the first expired lines, at most maxExpiredWarnings.
	Warnings []string `json:"warnings"`
}

func newOverrideImport(p *program) *cobra.Command {
	from := 0
	cmd := p.serverCommand(&cobra.Command{
		Use:   "import FILE.csv --server ADDRESS",
		Short: "Set overrides from a CSV file",
		Long: `Set overrides from a CSV file. The first line names the columns, in any order: rule, subject and limit are required;
expires, reason and limit_name are optional:

  rule,subject,limit,expires,reason
  search-by-key,tenant=acme,5000/minute,2026-12-01,launch
  exports,"tenant=acme,user=ann",100/hour burst 20,,

The whole file is validated first, against the rules of the server as well. If a line is invalid, nothing is sent and all
invalid lines are reported. Expired overrides are skipped with a warning. An interrupted import resumes where it stopped:
FILE.csv.progress stores the position, or use --from-line. Importing a file again changes nothing. Overrides that are not in
the file are kept.

Exit codes:
  0  all overrides are set
  1  the file has problems
  2  not all overrides could be set`,
		Example: "  headgate override import overrides.csv --server https://gate:8083 --token-file token",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		rules, rulesErr := rulesByName(ctx, c)
		file, err := checkOverrides(ctx, args[0], rules, time.Now())
		var problems csvErrors
		switch {
		case errors.As(err, &problems) && rulesErr != nil:
			return nil, &exitError{1, fmt.Sprintf("%s\nnothing was sent; there may be more problems, because the rules could not be loaded: %s\n", problems, rulesErr)}
		case errors.As(err, &problems):
			return nil, &exitError{1, problems.Error() + "\nnothing was sent\n"}
		case err != nil || rulesErr != nil:
			return nil, cmp.Or(err, rulesErr)
		}
		i := overrideImport{p: p, server: c, file: file, r: importReport{File: args[0], Warnings: file.warnings}}
		if i.line = from; from == 0 {
			i.resume()
		}
		return &i.r, i.run(ctx)
	})
	cmd.Flags().IntVar(&from, "from-line", 0, "start at line `N` of the file; the header is line 1")
	return cmd
}

// overrideImport is the state of one import.
type overrideImport struct {
	p      *program
	server *adminclient.Client
	file   *overrideFile
	r      importReport

	line                int // the first line that is not sent
	batch               []adminapi.Override
	lines               []int // the line numbers of the batch
	started, lastReport time.Time
}

// rulesByName returns the rules of a server, including disabled rules, by name and by UUID.
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
	i.started = time.Now()
	i.lastReport = i.started
	defer i.p.endProgress()
	err := i.file.each(ctx, func(line int, o *adminapi.Override) error {
		if line < i.line {
			i.r.Before++
			return nil
		}
		if expiredAt(o, i.started) {
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
		return fmt.Errorf("%w\nall lines before line %d are set; run the same command again to resume there", err, max(i.line, 2))
	}
	_ = os.Remove(i.progressFile()) // if the file remains, the next import of this file has nothing to do
	i.r.Seconds = time.Since(i.started).Seconds()
	i.r.RowsPerSecond = float64(i.r.Rows) / i.r.Seconds
	return nil
}

// overrideIndex matches the prefix by which a server identifies an invalid override of a batch.
var overrideIndex = regexp.MustCompile(`^override (\d+): `)

func (i *overrideImport) send(ctx context.Context) error {
	changed, err := i.server.SetOverrides(ctx, i.batch)
	if denied, ok := errors.AsType[*adminclient.StatusError](err); ok {
		if match := overrideIndex.FindStringSubmatch(denied.Detail); match != nil {
			if n, _ := strconv.Atoi(match[1]); n < len(i.lines) {
				return fmt.Errorf("%s:%d: %s", i.file.name, i.lines[n], denied.Detail[len(match[0]):])
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
	if now := time.Now(); now.Sub(i.lastReport) >= progressInterval {
		i.lastReport = now
		done, rate := i.r.Rows+i.r.Before+i.r.Ended, float64(i.r.Rows)/now.Sub(i.started).Seconds()
		left := time.Duration(float64(i.file.rows-done) / rate * float64(time.Second)).Round(time.Second)
		state := fmt.Sprintf("%s of %s, %s/s, %s remaining", wording.Number(int64(done)), wording.Count(i.file.rows, "row"),
			wording.Number(int64(rate)), left)
		if !i.p.progressf("%s", state) {
			i.p.logf("%s", state)
		}
	}
	return i.saveProgress()
}

// importProgress is the position of an import of one file, identified by its hash, into one server.
type importProgress struct {
	Server string `json:"server"`
	SHA256 string `json:"sha256"`
	Line   int    `json:"line"`
}

func (i *overrideImport) progressFile() string { return i.file.name + ".progress" }

func (i *overrideImport) saveProgress() error {
	data, err := json.Marshal(importProgress{i.server.Server, i.file.sum, i.line})
	if err == nil {
		err = os.WriteFile(i.progressFile(), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("save progress: %w: run the import with --from-line %d in a writable directory", err, i.line)
	}
	return nil
}

// resume reads the position of an interrupted import of the same file into the same server. Without one the import starts at the
// beginning, which is safe because imports are idempotent.
func (i *overrideImport) resume() {
	data, err := os.ReadFile(i.progressFile())
	var saved importProgress
	if err != nil || json.Unmarshal(data, &saved) != nil || saved.Server != i.server.Server || saved.SHA256 != i.file.sum {
		return
	}
	i.line = saved.Line
	i.p.logf("resuming at line %d (from %s)", i.line, i.progressFile())
}

func (r *importReport) text() string {
	var more []string
	if r.Before > 0 {
		more = append(more, wording.Count(r.Before, "row")+" set by an earlier import")
	}
	if r.Ended > 0 {
		more = append(more, wording.Count(r.Ended, "row")+" skipped because they have expired")
	}
	text := fmt.Sprintf("%s in %.1f s, %s/s: %s changed, %s unchanged", wording.Count(r.Rows, "row"), r.Seconds,
		wording.Number(int64(r.RowsPerSecond)), wording.Number(int64(r.Changed)), wording.Number(int64(r.Rows-r.Changed)))
	lines := []string{strings.Join(append([]string{text}, more...), "; ")}
	lines = append(lines, r.Warnings...)
	if left := r.Ended - len(r.Warnings); left > 0 {
		lines = append(lines, "and "+wording.Count(left, "line")+" more")
	}
	return strings.Join(lines, "\nwarning: ") + "\n"
}
