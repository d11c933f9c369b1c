package main

import (
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// workerFlag makes this program a worker: a node that reads what to do from its standard input.
const workerFlag = "-worker"

// spec is the first line that a worker reads.
type spec struct {
	Process int
	Redis   string
	// Deadline of decisions; 0 is the default.
	Deadline time.Duration
	Strict   bool // rules are
	// Out is the file for records of bulk work.
	Out    string
	Limits []judge.Limit
	Groups groups
}

// groups are the limits that apply together to a request, by index. Each group is a rule.
type groups [][]int

// Ops of a command besides those of a record.
const (
	opRules = "rules"
	opLoad  = "load"
	opClaim = "claims"
	opRetry = "retries"
)

// command is a line that a worker reads. It answers with a reply of the same ID, in any order.
type command struct {
	ID      int
	Op      string
	Group   int
	Subject string
	Caller  int
	Cost    int64
	Note    string
	Hold    time.Duration
	Token   []byte
	Groups  groups
	Bulk    bulk
}

// bulk is work of many requests, which the worker records in its file.
type bulk struct {
	Seed    uint64
	Callers int
	// Requests of each caller; 0 means until Until.
	Requests int
	// Start and Until are microseconds since 1970.
	Start, Until int64
	// Pause is after each answer. Period is from one request to the next, answered or not in between.
	Pause, Period time.Duration
	// Groups to choose from, and how many subjects to try.
	Groups []int
	Trials int
}

// reply is what a worker answers.
type reply struct {
	ID     int
	Record judge.Record
	Token  []byte
	Error  string
}
