package fleet

import (
	"testing"

	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// Open opens a Redis store that is closed with the test.
func Open(t testing.TB, address string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(address)
	testenv.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// Wrap opens a Redis store behind storewrap, as users have it.
func Wrap(t testing.TB, address string, o storewrap.Options) *storewrap.Store {
	t.Helper()
	store := storewrap.New(Open(t, address), o)
	t.Cleanup(store.Close)
	return store
}
