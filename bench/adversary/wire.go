package main

import (
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// workerFlag makes this program a worker: a node that is controlled by net/rpc over its standard streams.
const workerFlag = "-worker"

// Spec is the configuration of a worker.
type Spec struct {
	Process int
	Redis   string
	// Deadline of decisions; 0 means the default.
	Deadline time.Duration
	// Out is the file for records of bulk work.
	Out    string
	Limits []judge.Limit
	Groups groups
	// Document contains the rules, one per group; if it is empty, the rules consist of the limits.
	Document string
	// Listen, if not empty, is the address of an HTTP server whose handler calls Backend.
	Listen, Backend string
}

// groups are the limits that apply together to a request, by index. Each group is a rule.
type groups [][]int

// Ops of a command, in addition to those of a record.
const (
	opRules = "rules"
	opLoad  = "load"
	opClaim = "claims"
	opRetry = "retries"
	opSpend = "spend"
)

// Command is an instruction to a worker. A worker runs several concurrently.
type Command struct {
	Op      string
	Group   int
	Subject string
	Caller  int
	Cost    int64
	Note    string
	Hold    time.Duration
	Token   []byte
	Groups  groups
	Bulk    Bulk
	// Suffix of the group's name selects the rule, Method and Path the cost in its table. Cost is then what the table should say.
	Suffix, Method, Path string
	// Leave is when the caller leaves, however far the request is; 0 means never.
	Leave time.Duration
}

// attributes returns the attributes of a request.
func (c *Command) attributes() map[string]string {
	all := map[string]string{"user": c.Subject, "route": groupName(c.Group) + c.Suffix, subjectAttribute: c.Subject}
	if c.Path != "" {
		all["method"], all["path"] = c.Method, c.Path
	}
	return all
}

// Bulk describes many requests, which the worker records in its file.
type Bulk struct {
	Seed    uint64
	Callers int
	// Requests of each caller; 0 means until Until.
	Requests int
	// Start and Until are microseconds since 1970.
	Start, Until int64
	// Pause is the time after each response, Period the time from one request to the next.
	Pause, Period time.Duration
	// Groups to choose from, and the number of subjects.
	Groups []int
	Trials int
	// Table contains the requests to choose from. The caller leaves one request in Leaves; 0 means none.
	Table  []Entry
	Leaves int
}

// Entry is a request with its cost, and how often it occurs among the others.
type Entry struct {
	Suffix, Method, Path string
	Cost                 int64
	Weight               int
}

// Reply is a worker's reply to a command.
type Reply struct {
	Record judge.Record
	Token  []byte
	Spent  Spent
	// Peeks has a record for each limit of a peek that the store decided.
	Peeks []judge.Record
}

// Spent is the sum of the costs of requests.
type Spent struct {
	Admitted int64
	// Left is the cost of requests whose caller left before the response: they may have been admitted.
	Left int64
	// Local is whether a node decided without the store.
	Local bool
}

func (s *Spent) add(o Spent) {
	s.Admitted, s.Left, s.Local = s.Admitted+o.Admitted, s.Left+o.Left, s.Local || o.Local
}

// addRecord adds a request.
func (s *Spent) addRecord(r *judge.Record) {
	switch {
	case r.Note == judge.NoteLeft:
		s.Left += r.Cost
	case r.Allowed:
		s.Admitted += r.Cost
	}
	s.Local = s.Local || r.Path == "local" || r.Path == "failed"
}
