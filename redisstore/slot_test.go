package redisstore

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// keyInSlot returns a key in a slot.
func keyInSlot(slot int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("probe-", i); int(slotOf(key)) == slot {
			return key
		}
	}
}

func TestSlotMatchesServer(t *testing.T) {
	t.Parallel()
	server := testenv.StartCluster(t, testenv.Redis).Servers()[0]
	for i := range 1000 {
		key := format + ":headgate:" + headgate.SubjectOf(strconv.Itoa(i)).String()
		want, _ := server.Must(t, "CLUSTER", "KEYSLOT", key).(int64)
		if got := slotOf(key); int64(got) != want {
			t.Fatalf("slot of %s is %d, the server reports %d", key, got, want)
		}
	}
}
