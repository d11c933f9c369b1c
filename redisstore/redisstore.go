// Package redisstore keeps counters in Redis or Valkey: standalone, behind Sentinel, or in a Cluster.
//
// It knows how charges become one script call and what the reply means. It does not know rules, and sets no deadlines except
// those of the connection. All counters of a subject are fields of one hash. A charge that was sent and not answered is never
// sent again: its result has headgate.ErrUnanswered, and the caller decides.
package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redisclient"
)

// Options configures a Store. Only Address is required.
type Options struct {
	// Address is redis://host:6379, sentinel://host:26379,host:26379/master or cluster://host:6379,host:6379; rediss:// is
	// redis:// over TLS. It may have user:password@ before the host, and with redis:// a /database number after it. The
	// default ports are 6379, and 26379 for Sentinel.
	Address string
	// Namespace separates the counters of applications that share a Redis: 1 to 64 letters, digits, dots, dashes or
	// underscores; "" means "headgate". All nodes that share limits use the same one.
	Namespace string
	// Username and Password are used if Address has none.
	Username, Password string
	// Node is the name of this node, as operators see it; "" means the name of the host.
	Node string
	// WatchLoss makes the store notice when a shard loses its data; see Store.Lost.
	WatchLoss bool
	// TLS, if not nil, is used for all connections; rediss:// without it uses the defaults of crypto/tls, from TLS 1.2 on.
	TLS *tls.Config
}

// Validate returns an error if the options are invalid, with what to write instead. It does not connect.
func (o Options) Validate() error {
	_, err := clientOption(o)
	return err
}

const (
	defaultNamespace = "headgate"
	format           = redisclient.Format

	// dialTimeout is less than the second after which TCP resends a lost first packet: a new attempt is faster.
	dialTimeout = 300 * time.Millisecond
	// connTimeout is how long a server may stop answering before its connections are closed.
	connTimeout = 5 * time.Second
)

var validNamespace = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// clientOption validates the options and converts them to the client's.
func clientOption(o Options) (rueidis.ClientOption, error) {
	if o.Namespace != "" && !validNamespace.MatchString(o.Namespace) {
		return rueidis.ClientOption{}, fmt.Errorf("namespace %q: write 1 to 64 letters, digits, dots, dashes or underscores", o.Namespace)
	}
	co, err := redisclient.Options(o.Address, o.Username, o.Password, o.TLS)
	co.Dialer, co.ConnWriteTimeout = net.Dialer{Timeout: dialTimeout}, connTimeout
	switch {
	case co.Sentinel.MasterSet != "":
		co.Sentinel.TopologyRefreshInterval = heartbeatInterval
	case redisclient.IsCluster(&co):
		co.ClusterOption.ShardsRefreshInterval = heartbeatInterval
	}
	return co, err
}

// Store is a headgate.Store in Redis. It connects automatically and is safe for concurrent use. Take charges counters;
// Publish and Subscribe carry messages between nodes; Ready and Servers are for health checks and monitoring. Close it when
// done.
type Store struct {
	link    *link
	dial    func() (rueidis.Client, error)
	cluster bool

	namespace string
	prefix    string
	channels  string // prefix of channel names
	node      string // ID and name
	limiters  atomic.Uint32
	take      script
	announce  script
	wall      func() time.Time // this node's clock, which no decision depends on

	members    atomic.Pointer[membership]
	joinSignal chan struct{} // has an element if another node has joined
	// clockOffset is the store's time minus this node's, in microseconds. It is used only to guess calendar windows.
	clockOffset atomic.Int64
	shards      atomic.Pointer[[slots]uint16]
	watchesLoss bool
	markers     atomic.Pointer[map[int]marker] // by shard; nil until they were read
	markerKeys  map[int]string                 // in a Cluster; only watchLoss uses it
	// signing is nil until a key is needed.
	signing atomic.Pointer[[][]byte]

	stop    context.CancelFunc
	closing <-chan struct{}
	done    sync.WaitGroup
}

var (
	_ headgate.SlotStore = (*Store)(nil)
	_ headgate.Signer    = (*Store)(nil)
)

// Open calls New with an address, and with defaults for all other options.
func Open(address string) (*Store, error) {
	return New(Options{Address: address})
}

// New returns a store that connects automatically, now and whenever the connection is lost. It does not wait for Redis, and
// fails only if the options are invalid. Ready reports whether Redis answers.
func New(o Options) (*Store, error) {
	co, err := clientOption(o)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	o.Namespace = cmp.Or(o.Namespace, defaultNamespace)
	s := newStore(o, redisclient.IsCluster(&co))
	// Unlike keys, channels do not belong to a database, so their names include its number.
	s.channels = s.prefix + "db" + strconv.Itoa(co.SelectDB) + ":"
	s.dial = func() (rueidis.Client, error) { return rueidis.NewClient(co) }
	s.start()
	return s, nil
}

// newStore returns a store without dial and not started.
func newStore(o Options, cluster bool) *Store {
	s := &Store{
		link:      newLink(o.Address),
		cluster:   cluster,
		namespace: o.Namespace,
		prefix:    redisclient.Prefix(o.Namespace),
		node:      rand.Text() + " " + printable(cmp.Or(o.Node, hostName())),
		take:      takeScript,
		announce:  announceScript,
		wall:      time.Now,

		watchesLoss: o.WatchLoss, markerKeys: map[int]string{},
		joinSignal: make(chan struct{}, 1),
	}
	s.members.Store(&membership{})
	return s
}

// Close signs this node off and closes the connections. Charges in flight fail.
func (s *Store) Close() {
	s.stop()
	s.done.Wait()
	if client := s.link.client.Load(); client != nil {
		(*client).Close()
	}
}

// Shard returns 0, except in a Cluster, where it returns the lowest slot of the shard that holds the subject. The number does
// not change in a failover.
func (s *Store) Shard(subject headgate.Subject) int {
	shards := s.shards.Load()
	if shards == nil {
		return 0
	}
	return int(shards[slotOf(s.Key(subject))])
}

// Nodes returns the number of nodes that use the namespace, including this one. A killed node counts for ten seconds. If
// Redis loses its data, the number falls only after Redis has been available for ten seconds.
func (s *Store) Nodes() int { return int(max(1, s.members.Load().nodes)) }

// Membership returns the number of nodes that share the counters and the rank of this node among them, from 1; zeros if they are unknown.
func (s *Store) Membership() (nodes, rank int) {
	m := s.members.Load()
	return int(m.nodes), int(m.rank)
}

// Key returns the key of the subject in Redis: a hash with a field of six bytes for each counter. It is meant for inspection;
// only the scripts know the layout of the fields.
func (s *Store) Key(subject headgate.Subject) string { return s.prefix + subject.String() }
