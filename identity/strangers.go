package identity

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// maxStrangers is how many are remembered. It takes one log line to find a proxy that was forgotten; clients that play
// with the header must not fill the log.
const maxStrangers = 100

// strangers are peers that sent a header which only a trusted proxy may send.
type strangers struct {
	log   *slog.Logger
	mu    sync.RWMutex
	peers map[string]bool
}

func (s *strangers) note(peer, header string) {
	if peer == "" {
		peer = "a peer without an address"
	}
	s.mu.RLock()
	known := s.peers[peer] || len(s.peers) >= maxStrangers
	s.mu.RUnlock()
	if known || !s.add(peer) {
		return
	}
	s.log.Warn("header ignored: the peer is not trusted; if it is a proxy, add it to the trusted ones",
		"peer", peer, "header", header)
}

// add says whether the peer is new.
func (s *strangers) add(peer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[peer] || len(s.peers) >= maxStrangers {
		return false
	}
	if s.peers == nil {
		s.peers = map[string]bool{}
	}
	s.peers[peer] = true
	return true
}

func (s *strangers) list() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.peers))
}
