// Package redisstore keeps counters in Redis or Valkey: standalone, behind Sentinel, or in a Cluster.
//
// It knows how charges become one script call and what its replies mean; it knows no rules and sets no deadline of its
// own beyond the connection's. All counters of a subject are fields of one hash. A charge that was sent and not answered
// is never sent again: it is reported with headgate.ErrUnanswered, and whoever asked decides.
package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// Options say where Redis is and how to speak to it. Only Address is needed.
type Options struct {
	// Address is redis://host:6379, sentinel://host:26379,host:26379/master or cluster://host:6379,host:6379; rediss://
	// is redis:// over TLS. A user and password may stand before the host, a database number behind a redis:// one.
	Address string
	// Namespace separates the counters of those who share a Redis; "" means "headgate".
	Namespace string
	// Username and Password, where they are not in Address.
	Username, Password string
	// TLS, if not nil, is used towards every server.
	TLS *tls.Config
}

// Validate says what makes no sense, and what to write instead. It connects to nobody.
func (o Options) Validate() error {
	_, err := clientOption(o)
	return err
}

const (
	defaultNamespace = "headgate"
	// format is the version of all that is written: keys, hashes and their fields.
	format = "hg2"

	// dialTimeout is less than the second after which a lost first packet is sent again: a new attempt is sooner.
	dialTimeout = 300 * time.Millisecond
	// connTimeout is for a server that has stopped answering: its connections are given up after this long.
	connTimeout = 5 * time.Second
)

var validNamespace = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Store is a headgate.Store in Redis. Close it when done.
type Store struct {
	link    *link
	dial    func() (rueidis.Client, error)
	cluster bool

	namespace string
	prefix    string
	channels  string // the prefix of channels
	node      string
	take      script
	announce  script
	wall      func() time.Time // this node's clock, which decides nothing

	members atomic.Pointer[membership]
	changed chan struct{} // has one if another node has joined
	// ahead is how far the store's clock is before this node's, in microseconds. It only serves to guess calendar windows.
	ahead  atomic.Int64
	shards atomic.Pointer[[slots]uint16]
	// signing is nil until a key is needed.
	signing atomic.Pointer[[][]byte]

	stop    context.CancelFunc
	closing <-chan struct{}
	done    sync.WaitGroup
}

var (
	_ headgate.Store  = (*Store)(nil)
	_ headgate.Signer = (*Store)(nil)
)

// Open is New for an address, with defaults for all the rest.
func Open(address string) (*Store, error) {
	return New(Options{Address: address})
}

// New makes a store that connects by itself, now and whenever the connection is lost. It does not wait for Redis, and
// fails only if the options make no sense; Ready tells whether Redis answers.
func New(o Options) (*Store, error) {
	co, err := clientOption(o)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	o.Namespace = cmp.Or(o.Namespace, defaultNamespace)
	s := newStore(o, isCluster(&co))
	// Channels do not belong to a database, as keys do: their names have its number.
	s.channels = s.prefix + "db" + strconv.Itoa(co.SelectDB) + ":"
	s.dial = func() (rueidis.Client, error) { return rueidis.NewClient(co) }
	s.start()
	return s, nil
}

// newStore is a store that lacks only its dial and its start.
func newStore(o Options, cluster bool) *Store {
	s := &Store{
		link:      newLink(o.Address),
		cluster:   cluster,
		namespace: o.Namespace,
		prefix:    format + ":" + o.Namespace + ":",
		node:      rand.Text(),
		take:      takeScript,
		announce:  announceScript,
		wall:      time.Now,
		changed:   make(chan struct{}, 1),
	}
	s.members.Store(&membership{})
	return s
}

// Close signs this node off and closes the connections. Charges under way get an error.
func (s *Store) Close() {
	s.stop()
	s.done.Wait()
	if client := s.link.client.Load(); client != nil {
		(*client).Close()
	}
}

// Shard returns 0 but in a Cluster, where it is the lowest slot of the shard that holds the subject: a number that survives
// a failover.
func (s *Store) Shard(subject headgate.Subject) int {
	shards := s.shards.Load()
	if shards == nil {
		return 0
	}
	return int(shards[slotOf(s.Key(subject))])
}

// Nodes returns how many nodes use the namespace, this one included, as far as it knows. A node that was killed counts for ten
// seconds. A number that falls because Redis lost its data counts until Redis has been available for ten seconds.
func (s *Store) Nodes() int { return int(max(1, s.members.Load().nodes)) }

// Key is where the subject is in Redis: a hash with a field of six bytes for each counter. It is for looking, by people and
// tools; what is in the fields belongs to the scripts.
func (s *Store) Key(subject headgate.Subject) string { return s.prefix + subject.String() }
