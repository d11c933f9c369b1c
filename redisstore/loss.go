package redisstore

import (
	"context"
	"crypto/rand"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// A marker in each shard shows whether the shard has lost its data: if it is missing, or another one than before, so is everything that was
// stored before. Its value is a random text, the store's time at which it was made, in microseconds, and whether the node that made it
// knew another one before. A node that did not is new, and cannot distinguish an empty shard from one that lost its data; the others can, and
// correct the marker.
const (
	markerFirst = "first"
	markerLost  = "lost"
	markerTTL   = 366 * 24 * time.Hour
)

// marker is the marker of a shard, as this node knows it.
type marker struct {
	text string
	lost int64 // when the shard lost its data; 0 if it is not known to have
}

// Lost returns when the shard of a subject lost its data, as far as the nodes that use it have seen, and the time now, both on the store's
// clock. The time of the loss is zero if there was none, or Options.WatchLoss is not set. A loss is noticed within seconds.
func (s *Store) Lost(subject headgate.Subject) (at, now time.Time) {
	markers := s.markers.Load()
	if markers == nil {
		return time.Time{}, time.Time{}
	}
	if m := (*markers)[s.Shard(subject)]; m.lost > 0 {
		return time.UnixMicro(m.lost), s.now()
	}
	return time.Time{}, time.Time{}
}

// now returns the store's time, as this node knows it.
func (s *Store) now() time.Time {
	return s.wall().Add(time.Duration(s.clockOffset.Load()) * time.Microsecond)
}

// watchLoss reads the marker of each shard.
func (s *Store) watchLoss(ctx context.Context, client rueidis.Client) {
	next := map[int]marker{}
	if known := s.markers.Load(); known != nil {
		maps.Copy(next, *known)
	}
	for _, shard := range s.allShards() {
		if m, ok := s.readMarker(ctx, client, shard, next[shard]); ok {
			next[shard] = m
		}
	}
	s.markers.Store(&next)
}

// readMarker reads the marker of a shard, and makes or corrects it.
func (s *Store) readMarker(ctx context.Context, client rueidis.Client, shard int, known marker) (marker, bool) {
	key, kind := s.markerKey(shard), markerFirst
	if known.text != "" {
		kind = markerLost
	}
	offer := rand.Text() + " " + strconv.FormatInt(s.now().UnixMicro(), 10) + " " + kind
	text, err := agreeOn(ctx, client, key, offer, markerTTL)
	fields := strings.Fields(text)
	if err != nil || len(fields) != 3 {
		return marker{}, false
	}
	if known.text != "" && known.text != text && fields[2] == markerFirst {
		fields[2] = markerLost
		text = strings.Join(fields, " ")
		client.Do(ctx, client.B().Set().Key(key).Value(text).Xx().Keepttl().Build())
	}
	m := marker{text: text}
	if fields[2] == markerLost {
		m.lost, err = strconv.ParseInt(fields[1], 10, 64)
	}
	return m, err == nil
}

// allShards returns the numbers of all shards.
func (s *Store) allShards() []int {
	table := s.shards.Load()
	if table == nil {
		return []int{0}
	}
	var shards []int
	for slot, shard := range table {
		if slot == int(shard) {
			shards = append(shards, slot)
		}
	}
	return shards
}

// markerKey returns the key of a shard's marker. In a Cluster it is in the lowest slot of the shard.
func (s *Store) markerKey(shard int) string {
	if !s.cluster {
		return s.prefix + "marker"
	}
	key := s.markerKeys[shard]
	for n := 0; key == ""; n++ {
		if k := s.prefix + "marker:" + strconv.Itoa(n); slotOf(k) == uint16(shard) {
			s.markerKeys[shard], key = k, k
		}
	}
	return key
}
