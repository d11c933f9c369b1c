package testenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// node is one line of CLUSTER NODES: a node as another node sees it.
type node struct {
	addr    string
	flags   []string
	primary string // the id of a replica's primary, else "-"
	epoch   int64
	linked  bool
	slots   []slotRange
}

type slotRange struct{ first, last int }

func (n node) is(flag string) bool { return slices.Contains(n.flags, flag) }

// nodes returns the cluster as s sees it.
func (s *Server) nodes() ([]node, error) {
	reply, err := s.Do("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	var list []node
	for line := range strings.Lines(text) {
		n, err := parseNode(line)
		if err != nil {
			return nil, fmt.Errorf("%s: node %q: %w", s.Addr(), line, err)
		}
		list = append(list, n)
	}
	return list, nil
}

// myself returns s as it sees itself.
func (s *Server) myself() (node, error) {
	list, err := s.nodes()
	if err != nil {
		return node{}, err
	}
	if i := slices.IndexFunc(list, func(n node) bool { return n.is("myself") }); i >= 0 {
		return list[i], nil
	}
	return node{}, fmt.Errorf("%s does not know itself", s.Addr())
}

// parseNode parses
//
//	id ip:port@bus[,hostname] flags primary ping pong epoch link slot...
func parseNode(line string) (node, error) {
	parts := strings.Fields(line)
	if len(parts) < 8 {
		return node{}, fmt.Errorf("%d fields", len(parts))
	}
	addr, _, _ := strings.Cut(parts[1], "@")
	epoch, err := strconv.ParseInt(parts[6], 10, 64)
	if err != nil {
		return node{}, err
	}
	n := node{
		addr:    addr,
		flags:   strings.Split(parts[2], ","),
		primary: parts[3],
		epoch:   epoch,
		linked:  parts[7] == "connected",
	}
	for _, part := range parts[8:] {
		if part[0] == '[' {
			continue // migrating from or to another node
		}
		var r slotRange
		switch n, err := fmt.Sscanf(part, "%d-%d", &r.first, &r.last); n {
		case 0:
			return node{}, err
		case 1:
			r.last = r.first
		}
		if r.first < 0 || r.last >= slotCount {
			return node{}, fmt.Errorf("slots %s", part)
		}
		n.slots = append(n.slots, r)
	}
	return n, nil
}
