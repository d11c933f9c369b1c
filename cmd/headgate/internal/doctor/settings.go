package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/redact"
)

// Fill levels of maxmemory, in percent.
const (
	fillWarning = 80
	fillProblem = 95
)

// version checks that the server is one that tests run with.
func (c *redisCheck) version(address string, info map[string]string) {
	name, version := "Redis", info["redis_version"]
	untested := ""
	switch {
	case info["dragonfly_version"] != "":
		name, version, untested = "Dragonfly", info["dragonfly_version"], "it"
	case strings.EqualFold(info["server_name"], "valkey"):
		name, version = "Valkey", info["valkey_version"]
		if major(version) != 8 {
			untested = "this version"
		}
	case info["server_name"] != "" && !strings.EqualFold(info["server_name"], "redis"):
		name, untested = info["server_name"], "it"
	case major(version) < 7:
		c.add(address, "version", Problem, "Redis "+version+": the scripts need commands of Redis 7.0", "upgrade to Redis 7.0 or later, or Valkey 8")
		return
	}
	if untested != "" {
		c.add(address, "version", Warning, name+" "+version+": Headgate is not tested with "+untested, "use Redis 7.0 or later, or Valkey 8")
		return
	}
	c.add(address, "version", OK, name+" "+version, "")
}

func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first) // 0 if unknown
	return n
}

// settingNames are the settings that INFO does not contain.
var settingNames = []string{
	"save", "appendfsync", "lazyfree-lazy-expire", "cluster-enabled", "cluster-require-full-coverage", "cluster-node-timeout",
}

// settings returns the server's settings, or nil if the user may not read them.
func (c *redisCheck) settings(ctx context.Context, address string, client rueidis.Client) map[string]string {
	settings, err := client.Do(ctx, client.B().ConfigGet().Parameter(settingNames...).Build()).AsStrMap()
	if err != nil {
		why := "the user may not run CONFIG GET, which nodes do not need"
		if !isPermission(err) {
			why = redact.Text(err.Error())
		}
		c.add(address, "settings", Skipped, "snapshots, appendfsync, lazyfree and Cluster settings are not checked: "+why,
			c.cli(address, append([]string{"CONFIG", "GET"}, settingNames...)...))
		return nil
	}
	return settings
}

func (c *redisCheck) eviction(address string, info map[string]string) {
	policy, evicted := info["maxmemory_policy"], info["evicted_keys"]
	remedy := c.configSet(address, "maxmemory-policy", "noeviction")
	switch {
	case policy != "noeviction":
		c.add(address, "eviction", Problem, "maxmemory-policy is "+policy+": an evicted counter is a fresh allowance, and nothing shows it", remedy)
	case evicted != "" && evicted != "0":
		c.add(address, "eviction", Warning, "noeviction now, but "+evicted+" keys were evicted since Redis started: those limits started at zero", "")
	default:
		c.add(address, "eviction", OK, "noeviction", "")
	}
}

func (c *redisCheck) memory(address string, info map[string]string) {
	used, limit, total := number(info["used_memory"]), number(info["maxmemory"]), number(info["total_system_memory"])
	detail := megabytes(used) + " used"
	switch {
	case limit > 0 && used*100 >= limit*fillProblem:
		c.add(address, "memory", Problem, fmt.Sprintf("%s of maxmemory %s: a full Redis rejects charges", detail, megabytes(limit)),
			c.configSet(address, "maxmemory", fmt.Sprintf("%dmb", 2*used>>20+1)))
	case limit > 0 && used*100 >= limit*fillWarning:
		c.add(address, "memory", Warning, fmt.Sprintf("%s of maxmemory %s: a full Redis rejects charges", detail, megabytes(limit)),
			c.configSet(address, "maxmemory", fmt.Sprintf("%dmb", 2*used>>20+1)))
	case limit > 0:
		c.add(address, "memory", OK, fmt.Sprintf("%s of maxmemory %s", detail, megabytes(limit)), "")
	case total > 0 && used*2 >= total:
		c.add(address, "memory", Warning, fmt.Sprintf("%s of the host's %s, and no maxmemory: the kernel may kill Redis", detail, megabytes(total)),
			c.configSet(address, "maxmemory", fmt.Sprintf("%dmb", total*3/4>>20)))
	default:
		c.add(address, "memory", OK, detail+", no maxmemory", "")
	}
}

// number returns an integer of INFO, or 0 if it is missing.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/(1<<20)) }

func (c *redisCheck) persistence(address string, info, settings map[string]string) {
	restart := "a restart of Redis starts all limits at zero"
	if number(info["connected_slaves"]) > 0 {
		restart += ", and its replicas then drop their data, too"
	}
	appendOnly := c.configSet(address, "appendonly", "yes")
	switch {
	case info["aof_enabled"] == "1" && info["aof_last_write_status"] == "err":
		c.add(address, "persistence", Problem, "the last write to the append-only file failed: Redis rejects writes or loses them", "see the log of Redis; free the disk")
	case info["aof_enabled"] == "1" && settings["appendfsync"] == "no":
		c.add(address, "persistence", Warning, "appendonly with appendfsync no: if the host fails, up to 30 seconds of charges are lost",
			c.configSet(address, "appendfsync", "everysec"))
	case info["aof_enabled"] == "1":
		fsync := "appendonly"
		if settings != nil {
			fsync += ", appendfsync " + settings["appendfsync"]
		}
		c.add(address, "persistence", OK, fsync+": counters survive a restart", "")
	case settings == nil && info["rdb_last_save_time"] != "":
		c.add(address, "persistence", Warning, "no append-only file: a restart of Redis loses the charges since the last snapshot, or all if there are none", appendOnly)
	case settings["save"] != "":
		c.add(address, "persistence", Warning, "snapshots only (save "+settings["save"]+"): a restart of Redis loses the charges since the last one", appendOnly)
	default:
		c.add(address, "persistence", Warning, "none: "+restart, appendOnly)
	}
}

func (c *redisCheck) replication(address string, info map[string]string) {
	replicas := number(info["connected_slaves"])
	var behind []string
	for i := range replicas {
		// slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=0
		if line := info["slave"+strconv.FormatInt(i, 10)]; !strings.Contains(line, "state=online") {
			behind = append(behind, line)
		}
	}
	standalone := c.option.ForceSingleClient
	switch {
	case len(behind) > 0:
		c.add(address, "replication", Warning, "a replica is not in sync: a failover to it loses charges ("+strings.Join(behind, "; ")+")", "see the log of that replica")
	case replicas == 0 && standalone:
		c.add(address, "replication", OK, "a single server: while it is down, each node admits its local share of the limits", "")
	case replicas == 0:
		c.add(address, "replication", Warning, "no replica: if this primary fails, its subjects are decided without Redis until it is back", "start a replica of it")
	default:
		c.add(address, "replication", OK, fmt.Sprintf("%d in sync", replicas), "")
	}
}

func (c *redisCheck) lazyfree(address string, settings map[string]string) {
	switch settings["lazyfree-lazy-expire"] {
	case "":
	case "yes":
		c.add(address, "lazyfree", OK, "lazyfree-lazy-expire yes", "")
	default:
		c.add(address, "lazyfree", OK, "lazyfree-lazy-expire no: set it to yes if subjects have tens of thousands of reservations at a time", "")
	}
}

func (c *redisCheck) clusterSettings(address string, settings map[string]string) {
	if settings["cluster-enabled"] != "yes" {
		return
	}
	if c.option.ForceSingleClient {
		c.add(address, "cluster", Problem, "the server is part of a Cluster, but redis.address begins with redis://: keys of other servers fail", "redis.address: cluster://"+address)
		return
	}
	if settings["cluster-require-full-coverage"] == "yes" {
		c.add(address, "cluster", Warning, "cluster-require-full-coverage yes: while one shard is down, all of them reject charges",
			c.configSet(address, "cluster-require-full-coverage", "no"))
	}
	if timeout := number(settings["cluster-node-timeout"]); timeout > slowNodeTimeout {
		c.add(address, "cluster", Warning, fmt.Sprintf("cluster-node-timeout %d: a dead primary is replaced only after that many milliseconds; until then its subjects are decided by the local share", timeout),
			c.configSet(address, "cluster-node-timeout", "1000"))
	}
}

// slowNodeTimeout is the longest cluster-node-timeout in milliseconds that is not reported.
const slowNodeTimeout = 5000

// shard is a part of a Cluster.
type shard struct {
	primary string
	slots   [][2]int64
}

func (s shard) owns(slot int) bool {
	return slices.ContainsFunc(s.slots, func(r [2]int64) bool { return int64(slot) >= r[0] && int64(slot) <= r[1] })
}
