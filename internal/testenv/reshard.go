package testenv

import (
	"fmt"
	"strconv"
	"testing"
)

// MoveSlots moves slots and their keys from one primary to another, key by key as redis-cli does, so that clients get ASK, TRYAGAIN and
// MOVED during the move. It returns when every living node knows the new owner. A primary that loses its last slot may become a replica
// of the new owner.
func (c *Cluster) MoveSlots(t testing.TB, from, to *Server, slots ...int) {
	t.Helper()
	fromID := from.Must(t, "CLUSTER", "MYID").(string)
	toID := to.Must(t, "CLUSTER", "MYID").(string)
	primaries := c.Primaries(t)
	for _, n := range slots {
		slot := strconv.Itoa(n)
		to.Must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
		from.Must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
		if err := moveKeys(from, to, slot); err != nil {
			t.Fatalf("move slot %s from %s to %s: %v", slot, from.Addr(), to.Addr(), err)
		}
		// The new owner first: otherwise the slot would have no owner for a short time.
		to.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
		from.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
		for _, other := range primaries {
			if other != from && other != to && other.alive() {
				other.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
			}
		}
	}
	c.WaitOK(t)
}

// moveKeys moves all keys of a slot that is marked as migrating, to which no keys can be added.
func moveKeys(from, to *Server, slot string) error {
	for {
		reply, err := from.Do("CLUSTER", "GETKEYSINSLOT", slot, "100")
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if len(keys) == 0 {
			return nil
		}
		migrate := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.port), "", "0", "1000", "KEYS"}
		for _, key := range keys {
			name, ok := key.(string)
			if !ok {
				return fmt.Errorf("key %v", key)
			}
			migrate = append(migrate, name)
		}
		if _, err := from.Do(migrate...); err != nil {
			return err
		}
	}
}
