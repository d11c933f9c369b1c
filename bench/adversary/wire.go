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
}

// groups are the limits that apply together to a request, by index. Each group is a rule.
type groups [][]int

// Ops of a command, in addition to those of a record.
const (
	opRules = "rules"
	opLoad  = "load"
	opClaim = "claims"
	opRetry = "retries"
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
}

// Reply is a worker's reply to a command.
type Reply struct {
	Record judge.Record
	Token  []byte
}
