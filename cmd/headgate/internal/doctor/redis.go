package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/redisstore"
)

const (
	// dialTimeout is longer than that of a node: a slow answer is a finding, not a failure.
	dialTimeout = 2 * time.Second
	// redisTimeout bounds all checks of Redis.
	redisTimeout = 30 * time.Second
)

// Redis describes the Redis to examine, and what the config expects of it.
type Redis struct {
	redisstore.Options
	// TLSFiles are those of the config, for the commands of remedies.
	TLSFiles config.RedisTLS
	// Deadline is how long a decision waits for Redis.
	Deadline time.Duration
	// Nodes is the configured minimum number of nodes.
	Nodes int
}

// redisCheck is one examination of Redis.
type redisCheck struct {
	Redis
	option   rueidis.ClientOption
	prefix   string // of keys and channels
	findings []Finding
}

// CheckRedis examines every server behind an address.
func CheckRedis(ctx context.Context, r Redis) []Finding {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	option, err := redisclient.Options(r.Address, r.Username, r.Password, r.TLS)
	c := &redisCheck{Redis: r, option: option, prefix: redisclient.Prefix(r.Namespace)}
	if err != nil {
		return []Finding{{Section: SectionRedis, Check: "connection", Status: Problem, Detail: err.Error(), Remedy: "correct redis.address in the config"}}
	}
	c.option.Dialer = net.Dialer{Timeout: dialTimeout}
	c.option.ConnWriteTimeout = dialTimeout
	if option.Sentinel.MasterSet != "" {
		c.sentinels(ctx)
	}
	client, err := rueidis.NewClient(c.option)
	if err != nil {
		c.add("", "connection", Problem, fmt.Sprintf("cannot connect: %s. Until Redis answers, nodes decide by each rule's on_store_failure", redact.Text(err.Error())),
			c.connectRemedy(ctx, c.first(), err))
		return c.findings
	}
	defer client.Close()
	c.add("", "connection", OK, "connected", "")
	var shards []shard
	if redisclient.IsCluster(&c.option) {
		shards = c.cluster(ctx, client)
	}
	servers := client.Nodes()
	primaries := 0
	var own []Finding
	c.findings, own = nil, c.findings
	for _, address := range slices.Sorted(maps.Keys(servers)) {
		if c.server(ctx, address, servers[address], shards) {
			primaries++
		}
	}
	if primaries == 0 && len(c.findings) == 0 {
		c.add("", "primary", Problem, "no primary found, only replicas: nothing can be charged", "name the primary in redis.address, or use sentinel://; or promote a replica")
	}
	own = append(own, merge(c.findings, primaries)...)
	c.findings = own
	c.members(ctx, client)
	return c.findings
}

func (c *redisCheck) add(server, check string, status Status, detail, remedy string) {
	f := Finding{Section: SectionRedis, Check: check, Status: status, Detail: detail, Remedy: remedy}
	if server != "" {
		f.Servers = []string{server}
	}
	c.findings = append(c.findings, f)
}

// first returns the first server in the address, or "" if it has sentinels instead.
func (c *redisCheck) first() string {
	if c.option.Sentinel.MasterSet != "" {
		return ""
	}
	return c.option.InitAddress[0]
}

// connectRemedy returns what to do about a failed connection to a server.
func (c *redisCheck) connectRemedy(ctx context.Context, address string, err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "NOAUTH"):
		return "set redis.password_file, and redis.username unless it is the default user"
	case strings.Contains(text, "WRONGPASS"):
		return "correct redis.username and the password in redis.password_file"
	case strings.Contains(text, "NOPERM"):
		return c.grant(address)
	case strings.Contains(text, "x509:"):
		return "check redis.tls in the config against the certificate of Redis"
	case isNoSentinel(err):
		return noSentinelRemedy
	case strings.Contains(text, "connection refused"):
	default:
		if remedy := c.protocolRemedy(ctx, address); remedy != "" {
			return remedy
		}
	}
	return "start Redis, or correct redis.address in the config"
}

// server examines one server, and reports whether it is a primary.
func (c *redisCheck) server(ctx context.Context, address string, client rueidis.Client, shards []shard) (primary bool) {
	info, err := readInfo(ctx, client)
	switch {
	case isPermission(err):
		c.add(address, "info", Warning, "the user may not run INFO: version, memory, persistence and replication are not checked, and nodes have no metrics of evictions and failovers",
			c.grant(address))
		info = nil
	case err != nil:
		c.add(address, "connection", Problem, "does not answer: "+redact.Text(err.Error()), c.connectRemedy(ctx, address, err))
		return false
	case info["role"] == "slave":
		return false
	}
	if info != nil {
		c.version(address, info)
	}
	c.permissions(ctx, address, client, shards)
	settings := c.settings(ctx, address, client)
	if info != nil {
		c.eviction(address, info)
		c.memory(address, info)
		c.persistence(address, info, settings)
		c.replication(address, info)
	}
	c.lazyfree(address, settings)
	c.clusterSettings(address, settings)
	c.clock(ctx, address, client)
	c.latency(ctx, address, client)
	return true
}

// readInfo returns the fields of INFO.
func readInfo(ctx context.Context, client rueidis.Client) (map[string]string, error) {
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

// isPermission reports whether Redis denied a command to its user.
func isPermission(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(reply.Error(), "NOPERM")
}

// members compares the number of nodes that are running with the config.
func (c *redisCheck) members(ctx context.Context, client rueidis.Client) {
	now, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
	if err != nil || len(now) == 0 {
		return // reported above
	}
	// Scores are milliseconds until which a node counts.
	running, err := client.Do(ctx, client.B().Zcount().Key(c.prefix+"nodes").Min("("+now[0]+"000").Max("+inf").Build()).AsInt64()
	switch {
	case err != nil:
		return
	case running > int64(c.Nodes):
		c.add("", "nodes", Warning, fmt.Sprintf("%d nodes are running, and nodes in the config is %d: a node that starts while Redis is unavailable "+
			"would admit 1/%[2]d of each limit instead of 1/%[1]d", running, c.Nodes), fmt.Sprintf("nodes: %d", running))
	case running == 0:
		c.add("", "nodes", OK, "no node is running in namespace "+strings.Split(c.prefix, ":")[1], "")
	default:
		c.add("", "nodes", OK, fmt.Sprintf("%d running, %d configured", running, c.Nodes), "")
	}
}
