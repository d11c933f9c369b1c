package main

import (
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// workerFlag makes this program a worker: a node that is told what to do by net/rpc over its standard streams.
const workerFlag = "-worker"

// Spec is what a worker is started with.
type Spec struct {
	Process int
	Redis   string
	// Deadline of decisions; 0 is the default.
	Deadline time.Duration
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

// Command is what a worker is to do. Several are done side by side.
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
}

// Bulk is work of many requests, which the worker records in its file.
type Bulk struct {
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

// Reply is what a worker answers.
type Reply struct {
	Record judge.Record
	Token  []byte
}
