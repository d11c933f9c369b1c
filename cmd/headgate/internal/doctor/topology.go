package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/wording"
)

// clusterSlots is the number of slots of a Cluster.
const clusterSlots = 16384

// cluster checks that every slot is served and every server is healthy, and returns the shards.
func (c *redisCheck) cluster(ctx context.Context, client rueidis.Client) []shard {
	var reply []rueidis.RedisMessage
	err := errors.New("no server")
	for _, one := range client.Nodes() { // some may be down
		if reply, err = one.Do(ctx, one.B().ClusterShards().Build()).ToArray(); err == nil {
			break
		}
	}
	if err != nil {
		remedy := "see the log of Redis"
		if isPermission(err) {
			remedy = c.grant(c.option.InitAddress[0])
		} else if isNoCluster(err.Error()) {
			remedy = "redis.address: redis://" + c.option.InitAddress[0] + ", or name the servers of the Cluster"
		}
		c.add("", "cluster", Problem, "its shards cannot be read: "+redact.Text(err.Error()), remedy)
		return nil
	}
	var shards []shard
	served := int64(0)
	for _, part := range reply {
		fields, err := part.AsMap()
		if err != nil {
			continue
		}
		s, down, replicas := readShard(fields)
		for _, address := range down {
			c.add("", "cluster", Problem, address+" is down", "start it, or remove it with redis-cli --cluster del-node")
		}
		if len(s.slots) == 0 {
			continue
		}
		if replicas == 0 {
			c.add("", "cluster", Warning, "the shard of "+s.primary+" has no replica that is up: if it fails, nothing replaces it", shellwords.Command("redis-cli", "--cluster", "add-node", "REPLICA", s.primary, "--cluster-slave"))
		}
		for _, r := range s.slots {
			served += r[1] - r[0] + 1
		}
		shards = append(shards, s)
	}
	slices.SortFunc(shards, func(a, b shard) int { return int(a.slots[0][0] - b.slots[0][0]) })
	if served < clusterSlots {
		c.add("", "cluster", Problem, fmt.Sprintf("%d of %d slots are not served: their subjects are decided without Redis", clusterSlots-served, clusterSlots),
			shellwords.Command("redis-cli", "--cluster", "fix", c.option.InitAddress[0]))
	} else {
		c.add("", "cluster", OK, wording.Count(len(shards), "shard")+map[bool]string{true: " serves", false: " serve"}[len(shards) == 1]+" all slots", "")
	}
	return shards
}

// readShard reads an element of CLUSTER SHARDS: the shard, the servers that are down, and the number of replicas that are up.
func readShard(fields map[string]rueidis.RedisMessage) (s shard, down []string, replicas int) {
	var primaryUp bool
	nodes := fields["nodes"]
	list, _ := nodes.ToArray() // a shard without servers is not served
	for _, n := range list {
		node, err := n.AsMap()
		if err != nil {
			continue
		}
		text := func(name string) string {
			m := node[name]
			value, _ := m.ToString() // "" if missing
			return value
		}
		port := node["port"]
		number, err := port.AsInt64()
		if err != nil { // with TLS only
			port = node["tls-port"]
			number, _ = port.AsInt64()
		}
		address := net.JoinHostPort(text("ip"), strconv.FormatInt(number, 10))
		switch {
		case strings.HasPrefix(text("health"), "fail"): // "loading" is also said of replicas that have nothing to load
			down = append(down, address)
		case text("role") == "master":
			s.primary, primaryUp = address, true
		default:
			replicas++
		}
	}
	slots := fields["slots"]
	ranges, _ := slots.AsIntSlice() // first, last, first, last
	if primaryUp {
		for i := 0; i+1 < len(ranges); i += 2 {
			s.slots = append(s.slots, [2]int64{ranges[i], ranges[i+1]})
		}
	}
	return s, down, replicas
}

// sentinels checks every sentinel of the address, and the replicas that they would promote.
func (c *redisCheck) sentinels(ctx context.Context) {
	set := c.option.Sentinel.MasterSet
	reachable := 0
	var replicas []string
	for _, address := range c.option.InitAddress {
		one, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{address}, TLSConfig: c.option.TLSConfig, Dialer: c.option.Dialer, ConnWriteTimeout: dialTimeout,
			ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		})
		if err != nil {
			c.add("", "sentinel", Warning, address+" does not answer: "+redact.Text(err.Error()), "start it, or remove it from redis.address")
			continue
		}
		reachable++
		known := c.sentinel(ctx, one, address, set)
		if len(replicas) == 0 {
			replicas = known
		}
		one.Close()
	}
	if reachable < 2 {
		c.add("", "sentinel", Warning, fmt.Sprintf("%d of %d sentinels in redis.address answer: name at least three, so that nodes find the primary while some are down",
			reachable, len(c.option.InitAddress)), "")
	}
	for _, address := range replicas {
		c.replica(ctx, address)
	}
}

// isNoCluster reports whether an error of Redis says that the server is not part of a Cluster.
func isNoCluster(text string) bool { return strings.Contains(text, "cluster support disabled") }

// isNoSentinel reports whether a server does not know the commands of sentinels.
func isNoSentinel(err error) bool { return strings.Contains(err.Error(), "unknown command 'SENTINEL'") }

const noSentinelRemedy = "this is a Redis server and not a sentinel: name the sentinels in redis.address, whose port is 26379 by default, or write redis:// for a server without them"

// sentinel checks one sentinel, and returns the replicas that it knows.
func (c *redisCheck) sentinel(ctx context.Context, one rueidis.Client, address, set string) (replicas []string) {
	if err := one.Do(ctx, one.B().Arbitrary("SENTINEL", "CKQUORUM", set).Build()).Error(); err != nil {
		if isNoSentinel(err) {
			c.add("", "sentinel", Problem, address+": "+redact.Text(err.Error()), noSentinelRemedy)
			return nil
		}
		c.add("", "sentinel", Problem, address+": no failover is possible: "+redact.Text(err.Error()), "start the other sentinels, or correct the name of the primary in redis.address")
		return nil
	}
	reply, err := one.Do(ctx, one.B().Arbitrary("SENTINEL", "REPLICAS", set).Build()).ToArray()
	if err != nil {
		c.add("", "sentinel", Warning, address+": its replicas cannot be read: "+redact.Text(err.Error()), "")
		return nil
	}
	up := 0
	for _, r := range reply {
		fields, err := r.AsStrMap()
		if err != nil {
			continue
		}
		replicas = append(replicas, net.JoinHostPort(fields["ip"], fields["port"]))
		if fields["flags"] == "slave" && fields["master-link-status"] == "ok" {
			up++
		}
	}
	if up == 0 {
		c.add("", "sentinel", Problem, address+": no replica is in sync: a failover is not possible", "start a replica")
		return replicas
	}
	c.add("", "sentinel", OK, fmt.Sprintf("%s: quorum reached, %s in sync", address, wording.Count(up, "replica")), "")
	return replicas
}

// replica checks that nodes could use a replica after a failover: users are not replicated.
func (c *redisCheck) replica(ctx context.Context, address string) {
	option := c.option
	option.InitAddress, option.Sentinel, option.ForceSingleClient = []string{address}, rueidis.SentinelOption{}, true
	one, err := rueidis.NewClient(option)
	if err == nil {
		err = one.Do(ctx, one.B().Role().Build()).Error()
		one.Close()
	}
	if err != nil {
		c.add("", "replica", Problem, address+" cannot be used after a failover: "+redact.Text(err.Error()), "create the user on every server, replicas included: "+c.connectRemedy(ctx, address, err))
		return
	}
	c.add("", "replica", OK, address+" accepts the user", "")
}
