// Package doctor examines a deployment for settings that make limits inexact, slow or easy to get around: Redis, PostgreSQL, the
// config, its files, other regions and this host. Each finding has its meaning and its remedy.
//
// It charges nothing and leaves nothing in Redis. It does not know rules, and does not print.
package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// Status is the severity of a finding.
type Status string

// The statuses, from harmless to severe. Skipped means that a check could not be made.
const (
	OK      Status = "ok"
	Skipped Status = "skipped"
	Warning Status = "warning"
	Problem Status = "problem"
)

// The sections of findings, in their order.
const (
	SectionRedis     = "redis"
	SectionPostgres  = "postgres"
	SectionListeners = "listeners"
	SectionRegions   = "regions"
	SectionIdentity  = "identity"
	SectionFiles     = "files"
	SectionHost      = "host"
	SectionRules     = "rules"
)

// Finding is the result of one check.
type Finding struct {
	Section string `json:"section"`
	Check   string `json:"check"`
	Status  Status `json:"status"`
	// Servers are the Redis servers that the finding is about. It is omitted if it is about all or none.
	Servers []string `json:"servers,omitempty"`
	// Detail says what was found and what it means.
	Detail string `json:"detail"`
	// Remedy is a command, a line for the config, or what else to do. It is omitted if there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// merge joins findings that differ only in their server. Findings that hold for all servers lose their servers.
func merge(findings []Finding, servers int) []Finding {
	// general returns a remedy for any server.
	general := func(f Finding) string {
		if len(f.Servers) == 0 {
			return f.Remedy
		}
		return strings.ReplaceAll(f.Remedy, cliTarget(f.Servers[0]), anyServer)
	}
	var merged []Finding
	for _, f := range findings {
		at := slices.IndexFunc(merged, func(m Finding) bool {
			return m.Check == f.Check && m.Status == f.Status && m.Detail == f.Detail && general(m) == general(f)
		})
		if at < 0 {
			merged = append(merged, f)
			continue
		}
		merged[at].Remedy = general(f)
		merged[at].Servers = append(merged[at].Servers, f.Servers...)
	}
	for i := range merged {
		if len(merged[i].Servers) > 1 {
			merged[i].Remedy = forServers(merged[i].Remedy, merged[i].Servers)
		}
		if len(merged[i].Servers) == servers {
			merged[i].Servers = nil
		}
	}
	first := map[string]int{}
	for i, f := range merged {
		if _, known := first[f.Check]; !known {
			first[f.Check] = i
		}
	}
	slices.SortStableFunc(merged, func(a, b Finding) int { return cmp.Compare(first[a.Check], first[b.Check]) })
	return merged
}
